"""Large audit logs are read and decoded in a process of its own, so that two cores share the work.

`python -m levelog_wakes.ahead FILE…` writes batches of calls, each behind its size in four bytes.
"""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, Final

import msgspec
from msgspec import Struct

from levelog.errors import ConfigurationError
from levelog_wakes.audit import AuditCall, AuditReader, Remarks
from levelog_wakes.streams import read_files

_LARGE_BYTES: Final = 32 << 20
"""Of a file; smaller ones are read before another process has started."""
_BATCH: Final = 500
_SIZE_BYTES: Final = 4


class _Batch(Struct, array_like=True):
    calls: list[AuditCall]
    events: int = 0
    """As the reader counts them; this and what follows is in the last one."""
    remarks: list[tuple[str, str, int]] = []
    error: str = ""
    is_last: bool = False


def read_ahead(files: Sequence[Path], reader: AuditReader) -> Iterator[AuditCall]:
    """The same as `read_files`, from another process if a file is large or a pipe."""
    if all(file.is_file() and file.stat().st_size < _LARGE_BYTES for file in files):
        yield from read_files(files, reader)
        return
    argv = [sys.executable, "-m", __name__, *map(str, files)]
    pipe = subprocess.PIPE
    # in a session of its own Ctrl-C does not reach it: it is ended below
    with subprocess.Popen(argv, stdout=pipe, start_new_session=True) as process:  # noqa: S603 - this program
        try:
            for batch in _batches(process.stdout):
                yield from batch.calls
                if batch.is_last:
                    reader.events = batch.events
                    for what, place, times in batch.remarks:
                        reader.remarks.note(what, place, times)
                    if batch.error:
                        raise ConfigurationError(batch.error)
                    return
        finally:
            process.terminate()
    raise ConfigurationError(f"the process that reads the audit logs has ended: status {process.returncode}")


def _batches(pipe: IO[bytes] | None) -> Iterator[_Batch]:
    decoder = msgspec.msgpack.Decoder(_Batch)
    while pipe is not None and (size := pipe.read(_SIZE_BYTES)):
        coded = pipe.read(int.from_bytes(size))
        if len(coded) < int.from_bytes(size):
            return  # it was killed
        yield decoder.decode(coded)


def _write(pipe: IO[bytes], batch: _Batch) -> None:
    coded = msgspec.msgpack.encode(batch)
    pipe.write(len(coded).to_bytes(_SIZE_BYTES))
    pipe.write(coded)


def main(files: Sequence[Path], pipe: IO[bytes]) -> None:
    """Read the files, and write what `read_ahead` takes."""
    reader, error = AuditReader(Remarks()), ""
    calls = read_files(files, reader)
    try:
        while batch := list(islice(calls, _BATCH)):
            _write(pipe, _Batch(batch))
    except ConfigurationError as refused:
        error = str(refused)
    reader.finish()
    _write(pipe, _Batch([], reader.events, reader.remarks.told(), error, is_last=True))
    pipe.flush()


if __name__ == "__main__":
    main([Path(each) for each in sys.argv[1:]], sys.stdout.buffer)
