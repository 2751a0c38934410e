"""Which operator a handler is in: that of the file that is being loaded, also if a module that it imports has it."""

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Final

from levelog.compat.kopf.files import KopfFile
from levelog.compat.kopf.leftovers import warn_of_marks
from levelog.operator import OPERATOR, Operator, loaded_into
from levelog_base.errors import OperatorError

_FILE: Final = "__levelog_kopf_file__"


def declare(function: Any, how: Callable[[KopfFile], None]) -> None:
    """Have a handler made in the file that is being loaded, else in the module that the function is defined in.

    Raises OperatorError for what is no function of a file, and as `how` does.
    """
    inner = inspect.unwrap(function)
    module: dict[str, Any] | None = getattr(getattr(inner, "__func__", inner), "__globals__", None)
    if module is None or not hasattr(function, "__name__"):
        raise OperatorError(f"{function!r} is no function of a file: write one with def, and call it from there")
    home = loaded_into.get()
    home = module if home is None else home
    file: KopfFile = home[_FILE] if _FILE in home else home.setdefault(_FILE, KopfFile(_name_in(home)))
    if module.get("__file__") not in file.read:
        file.read.add(module.get("__file__"))
        warn_of_marks(module.get("__file__"), file.operator.finalizer)
    how(file)
    file.declared.append(how)
    file.importers.update(_importing())
    home[OPERATOR] = module[OPERATOR] = file.operator


def operator_in(module: ModuleType) -> Operator:
    """The operator of an imported Kopf file and of what that imports, for tests. Raises OperatorError for none."""
    names = {module.__name__, *_named_by(module)}
    loaded = [(name, each) for name, each in list(sys.modules.items()) if _FILE in getattr(each, "__dict__", ())]
    found = {name: each.__dict__[_FILE] for name, each in loaded}
    files = [file for name, file in found.items() if name in names or names & file.importers]
    if files and files != [vars(module).get(_FILE)]:
        whole = KopfFile(_name_in(vars(module)))
        for declared in [each for file in files for each in file.declared]:
            declared(whole)
        return whole.operator
    operator = vars(module).get(OPERATOR)
    if not isinstance(operator, Operator):
        raise OperatorError(f"{module.__name__!r} has no handlers of levelog.compat.kopf")
    return operator


def _name_in(module: dict[str, Any]) -> str:
    stem = Path(str(module.get("__file__") or module.get("__name__") or "kopf")).stem
    return re.sub(r"[^-A-Za-z0-9]+", "-", stem).strip("-") or "kopf"


def _named_by(module: ModuleType) -> Iterator[str]:
    """Modules of which a module has names."""
    for value in vars(module).values():
        if isinstance(value, ModuleType):
            yield value.__name__
        elif isinstance(value, FunctionType | type):
            yield value.__module__


def _importing() -> Iterator[str]:
    """Modules that are being imported, of which each imports the one before it."""
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_code.co_name == "<module>":
            yield str(frame.f_globals.get("__name__"))
        frame = frame.f_back
