"""Where the tests keep what they write: in memory, if there is room."""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

_MEMORY: Final = Path("/dev/shm")
_ROOM_BYTES: Final = 4 * 1024**3  # several times what a run of all tests with six workers holds at once


def write_to_memory() -> None:
    """Let temporary folders of this process and those that it starts be in memory; commits need not wait for a disk.

    Unless somebody has chosen a place, there is little room, or programs cannot be run from there.
    """
    if "TMPDIR" not in os.environ and _has_room():
        os.environ["TMPDIR"] = str(_MEMORY)
        tempfile.tempdir = None


def _has_room() -> bool:
    if not os.access(_MEMORY, os.W_OK | os.X_OK) or shutil.disk_usage(_MEMORY).free < _ROOM_BYTES:
        return False
    return not os.statvfs(_MEMORY).f_flag & os.ST_NOEXEC
