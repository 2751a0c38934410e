"""Python's packages as files: the module that a file is, and the file that a module is in."""

import sys
from importlib.util import find_spec
from pathlib import Path

from msgspec import Struct


class Package(Struct, frozen=True):
    """The place of a file in a package."""

    module: str
    """`acme.handlers.teams`; that of an `__init__.py` is the package."""
    root: Path
    """The folder that Python imports the package from."""

    @property
    def is_taken(self) -> bool:
        """Whether another module has the name of the outermost package."""
        name = self.module.partition(".")[0]
        places = getattr(sys.modules.get(name), "__path__", None if name in sys.modules else [str(self.root / name)])
        return places is None or str(self.root / name) not in map(str, places)


def package_of(file: Path) -> Package | None:
    """The package that a file is of; None for one that is in none, or whose name is none in Python."""
    file = file.resolve()
    names = [] if file.stem == "__init__" else [file.stem]
    folder = file.parent
    while (folder / "__init__.py").exists():
        names.append(folder.name)
        folder = folder.parent
    if folder == file.parent or not all(name.isidentifier() for name in names):
        return None
    return Package(".".join(reversed(names)), folder)


def file_of(module: str) -> Path | None:
    """The file of a module of the working directory, or of an installed one, which is not imported; None: of none."""
    top, *below = module.split(".")
    if top == "__main__" or not all(name.isidentifier() for name in (top, *below)):
        return None
    places = [Path(top)]
    if not Path(top).is_dir() and not Path(f"{top}.py").exists() and (spec := find_spec(top)) is not None:
        places = [Path(place) for place in spec.submodule_search_locations or [str(spec.origin).removesuffix(".py")]]
    paths = [place.joinpath(*below) for place in places]
    files = [file for path in paths for file in (path / "__init__.py", path.with_name(f"{path.name}.py"))]
    return next((file for file in files if file.is_file()), None)
