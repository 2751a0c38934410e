"""What a Kopf file says of Kopf's own marks on objects, which levelog does not make: told when the file is loaded."""

import logging
import re
from pathlib import Path
from typing import Final

_MARKS: Final = {
    r"KopfFinalizerMarker|persistence\.finalizer": (
        "the finalizer is {finalizer} here, and Kopf's stays on objects that it had: `levelog remove-finalizers FILE "
        "--finalizer NAME` removes it"
    ),
    r"last-handled-configuration|DiffBaseStorage\(|persistence\.diffbase_storage": (
        "there is no last-handled annotation here: levelog compares in SQL, and leaves the one that Kopf wrote"
    ),
    r"persistence\.progress_(storage|annotation)|ProgressStorage\(": (
        "there are no progress annotations here: progress is in SQL, `levelog levels` shows it"
    ),
}
"""What of the code means them, and what to say."""

log = logging.getLogger("levelog.compat.kopf")


def warn_of_marks(file: str | None, finalizer: str) -> None:
    """Warn of each kind of mark that a file names, with the first line that does."""
    path = Path(file) if file else None
    if path is None or path.suffix != ".py" or not path.is_file():
        return
    lines = [line.partition("#")[0] for line in path.read_text(errors="replace").splitlines()]
    for pattern, said in _MARKS.items():
        number = next((number for number, line in enumerate(lines, 1) if re.search(pattern, line)), None)
        if number is not None:
            text = said.format(finalizer=finalizer)
            log.warning("%s, line %d: %s: docs/from-kopf.md#what-kopf-left-on-objects", path.name, number, text)
