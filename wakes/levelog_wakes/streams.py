"""Audit logs in files: plain or gzip, of one server or of several, as one stream in the order of time."""

import gzip
import heapq
import zlib
from collections.abc import Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import IO, Final, cast

from levelog.errors import ConfigurationError
from levelog_wakes.audit import AuditCall, AuditReader

_LONGEST_BYTES: Final = 64 << 20
"""Of a line, or of a file that is one EventList over many lines; objects have at most 1.5 MiB each."""
_AHEAD: Final = 256
"""Events that are put in order: servers log a request when it ends, in batches, side by side."""
_GZIP: Final = b"\x1f\x8b"
_BY_END: Final = attrgetter("ended")


def read_files(files: Sequence[Path], reader: AuditReader) -> Iterator[AuditCall]:
    """The calls of all files by the time at which they ended. Raises ConfigurationError for one that cannot be read."""
    streams = [_ordered(_calls(file, _opened(file), reader)) for file in files]
    merged = heapq.merge(*streams, key=_BY_END) if len(streams) > 1 else iter(streams[0])
    last = 0.0
    for call in merged:
        if call.ended < last - 1 and call.verb != "watch":  # which is told at its end
            reader.remarks.note("events are more than a second older than what stands before them")
        last = max(last, call.ended)
        yield call


def _opened(file: Path) -> IO[bytes]:
    try:
        with file.open("rb") as opened:
            is_packed = opened.read(2) == _GZIP
        return cast("IO[bytes]", gzip.open(file)) if is_packed else file.open("rb")
    except OSError as error:
        raise ConfigurationError(f"audit log {file} cannot be read: {error.strerror}") from error


def _calls(file: Path, opened: IO[bytes], reader: AuditReader) -> Iterator[AuditCall]:
    with opened:
        for number, line in enumerate(_lines(file, opened, reader), 1):
            yield from reader.read(line, f"{file.name}:{number}")


def _lines(file: Path, opened: IO[bytes], reader: AuditReader) -> Iterator[bytes]:
    try:
        while line := opened.readline(_LONGEST_BYTES):
            if line.strip() == b"{":
                line += opened.read(_LONGEST_BYTES)
            if len(line) >= _LONGEST_BYTES:
                reader.remarks.note("lines are longer than 64 MiB, and left out", file.name)
                while line and not line.endswith(b"\n"):
                    line = opened.readline(_LONGEST_BYTES)
            elif not line.isspace():
                yield line
    except (EOFError, zlib.error, gzip.BadGzipFile):
        reader.remarks.note("files are cut: read up to there", file.name)


def _ordered(calls: Iterator[AuditCall]) -> Iterator[AuditCall]:
    waiting: list[tuple[float, int, AuditCall]] = []
    for number, call in enumerate(calls):
        item = (call.ended, number, call)
        if number < _AHEAD:
            heapq.heappush(waiting, item)
        else:
            yield heapq.heappushpop(waiting, item)[2]
    while waiting:
        yield heapq.heappop(waiting)[2]
