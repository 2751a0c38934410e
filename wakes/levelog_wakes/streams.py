"""Audit logs in files: plain or gzip, of one server or of several, as one stream in the order of time."""

import gzip
import heapq
import zlib
from collections.abc import Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import IO, Final, cast

from levelog_base.errors import ConfigurationError
from levelog_wakes.audit import AuditCall, AuditReader

_LONGEST_BYTES: Final = 64 << 20
"""Of a line, or of a file that is one EventList over many lines; objects have at most 1.5 MiB each."""
_SORTED: Final = 256
"""Events that are put in order: servers log a request when it ends, in batches, side by side."""
_BY_END: Final = attrgetter("ended")


def read_files(files: Sequence[Path], reader: AuditReader) -> Iterator[AuditCall]:
    """The calls of all files by the time at which they ended; `-` is the standard input.

    Raises ConfigurationError for a file that cannot be read.
    """
    last = 0.0
    for call in heapq.merge(*(_ordered(_calls(file, reader)) for file in files), key=_BY_END):
        if call.ended >= last:
            last = call.ended
        elif call.ended < last - 1 and call.verb != "watch":  # which is told at its end
            reader.remarks.note("events are more than a second older than what stands before them")
        yield call


def _calls(file: Path, reader: AuditReader) -> Iterator[AuditCall]:
    number, name = 0, file.name
    try:
        with (Path("/dev/stdin") if name == "-" else file).open("rb") as packed:
            opened = cast("IO[bytes]", gzip.GzipFile(fileobj=packed)) if packed.peek(2)[:2] == b"\x1f\x8b" else packed
            while line := opened.readline(_LONGEST_BYTES):
                number += 1
                if line == b"{\n":
                    line += opened.read(_LONGEST_BYTES)
                if len(line) >= _LONGEST_BYTES:
                    reader.remarks.note("lines are longer than 64 MiB, and left out", f"{name}:{number}")
                    while line and not line.endswith(b"\n"):
                        line = opened.readline(_LONGEST_BYTES)
                elif not line.isspace():
                    yield from reader.read(line, name, number)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        reader.remarks.note("files are cut: read up to there", name)
    except OSError as error:
        raise ConfigurationError(f"audit log {file} cannot be read: {error.strerror}") from error


def _ordered(calls: Iterator[AuditCall]) -> Iterator[AuditCall]:
    waiting: list[AuditCall] = []
    for call in calls:
        waiting.append(call)
        if len(waiting) == 2 * _SORTED:
            waiting.sort(key=_BY_END)
            yield from waiting[:_SORTED]
            del waiting[:_SORTED]
    yield from sorted(waiting, key=_BY_END)
