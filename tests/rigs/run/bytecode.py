"""After a checkout, each worker compiles a part of the tests, where each would compile all of them at once."""

from contextlib import suppress
from pathlib import Path

import pytest
from _pytest.pathlib import import_path


def import_a_part(config: pytest.Config) -> None:
    """Import every nth file of the folders to be tested, as their collection does next: it finds these loaded."""
    worker: dict[str, str | int] | None = getattr(config, "workerinput", None)
    if worker is None:
        return
    number, count = int(str(worker["workerid"]).removeprefix("gw")), int(worker["workercount"])
    files = sorted(file for folder in map(Path, config.args) if folder.is_dir() for file in folder.rglob("test_*.py"))
    for file in files[number::count]:
        with suppress(Exception, pytest.skip.Exception):  # its collection reports it
            import_path(file, mode="importlib", root=config.rootpath, consider_namespace_packages=False)
