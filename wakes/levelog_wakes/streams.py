"""Audit logs in files: plain or gzip, of one server or of several, as one stream in the order of time.

Large ones are read in a process of its own, so that two cores share the work: `python -m levelog_wakes.streams FILE…`
writes batches of calls.
"""

import gzip
import heapq
import os
import subprocess
import sys
import zlib
from collections.abc import Iterator, Sequence
from itertools import islice
from multiprocessing.connection import Connection
from operator import attrgetter
from pathlib import Path
from typing import IO, Final, cast

import msgspec

from levelog_base.errors import ConfigurationError
from levelog_wakes.audit import AuditCall, AuditReader, Remarks

_LONGEST_BYTES: Final = 64 << 20
"""Of a line, or of a file that is one EventList over many lines; objects have at most 1.5 MiB each."""
_LARGE_BYTES: Final = 32 << 20
"""Of a file; smaller ones are read before another process has started."""
_SORTED: Final = 256
"""Events that are put in order: servers log a request when it ends, in batches, side by side."""
_BATCH: Final = 500
_BY_END: Final = attrgetter("ended")


class _Batch(msgspec.Struct, array_like=True):
    calls: list[AuditCall]
    """Empty in the last one."""
    events: int = 0
    """As the reader counts them; this and what follows is in the last one."""
    remarks: dict[str, tuple[str, int]] = {}
    error: str = ""


def read_ahead(files: Sequence[Path], reader: AuditReader) -> Iterator[AuditCall]:
    """The calls of all files by the time at which they ended; `-` is the standard input.

    Another process reads them if one is large or a pipe. Raises ConfigurationError for a file that cannot be read.
    """
    if all(file.is_file() and file.stat().st_size < _LARGE_BYTES for file in files):
        yield from read_files(files, reader)
        return
    argv = [sys.executable, "-m", __name__, *map(str, files)]
    decode = msgspec.msgpack.Decoder(_Batch).decode
    here, there = os.pipe()
    with (
        # in a session of its own Ctrl-C does not reach it: it is ended below
        subprocess.Popen(argv, stdout=there, start_new_session=True) as process,  # noqa: S603 - this program
        Connection(here, writable=False) as batches,
    ):
        os.close(there)
        try:
            while (batch := decode(batches.recv_bytes())).calls:
                yield from batch.calls
            reader.events = batch.events
            for what, (place, times) in batch.remarks.items():
                reader.remarks.note(what, place, times)
            if batch.error:
                raise ConfigurationError(batch.error)
        except EOFError:
            raise ConfigurationError(f"the process that reads audit logs has ended: status {process.wait()}") from None
        finally:
            process.terminate()


def read_files(files: Sequence[Path], reader: AuditReader) -> Iterator[AuditCall]:
    """As `read_ahead`, in this process."""
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


def _send(files: Sequence[Path]) -> None:
    """Read the files, and write to the standard output what `read_ahead` takes."""
    reader, error = AuditReader(Remarks()), ""
    calls, pipe = read_files(files, reader), Connection(os.dup(sys.stdout.fileno()), readable=False)
    try:
        while batch := list(islice(calls, _BATCH)):
            pipe.send_bytes(msgspec.msgpack.encode(_Batch(batch)))
    except ConfigurationError as refused:
        error = str(refused)
    reader.finish()
    pipe.send_bytes(msgspec.msgpack.encode(_Batch([], reader.events, reader.remarks, error)))


if __name__ == "__main__":
    _send([Path(each) for each in sys.argv[1:]])
