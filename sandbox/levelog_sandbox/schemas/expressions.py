"""Expressions in CEL: compiled, and evaluated on JSON values, which are typed as their schema says.

The libraries are optional, and loaded with the first expression.
"""

import re
from base64 import b64decode
from binascii import Error as NotBase64Error
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from itertools import pairwise
from typing import Any, Final

from levelog_sandbox.schemas.shapes import Schema

LIBRARIES: Final = "cel-expr-python protobuf"
"""What `pip install` needs."""
# Origin: k8s.io/apiserver/third_party/forked/celopenapi/model.
_RESERVED: Final = re.compile(
    "true|false|null|in|as|break|const|continue|else|for|function|if|import|let|loop|package|namespace|return"
)
_NAMES: Final = ("name", "generateName")
_ESCAPES: Final = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}


class CelError(Exception):
    """An expression cannot be compiled or evaluated; the text says why, of an evaluation in the server's words."""


class CelExpression:
    """One compiled expression on `self`, and perhaps on `oldSelf`."""

    def __init__(self, program: Any, *, uses_old: bool) -> None:
        self._program = program
        self.uses_old = uses_old
        self.type_name: str = program.return_type().name()

    def of(self, value: Any, old: Any) -> Any:
        """Its value, for CEL's own; None as `old` is no value. Raises CelError."""
        from cel_expr_python import cel  # noqa: PLC0415 - optional, and only for definitions with rules

        found = self._program.eval(data={"self": value, "oldSelf": old, "_old": old, "_had": old is not None})
        if found.type() == cel.Type.ERROR:
            raise CelError(_as_server(str(found.plain_value())))
        return found.plain_value()


@cache
def is_available() -> bool:
    """Whether the libraries are installed."""
    try:
        import_module("cel_expr_python.cel")
        import_module("google.protobuf.timestamp_pb2")
    except ImportError:
        return False
    return True


@cache
def compiled(text: str, *, is_old_optional: bool = False) -> CelExpression:
    """An expression. Raises CelError for one that is wrong, or calls what is missing here."""
    bound = f"cel.bind(oldSelf, _had ? optional.of(_old) : optional.none(), ({text}))" if is_old_optional else text
    try:
        return CelExpression(_environment(has_old=False).compile(text), uses_old=False)
    except RuntimeError:
        try:
            return CelExpression(_environment(has_old=True).compile(bound), uses_old=True)
        except RuntimeError as error:
            found = re.findall(r"ERROR: <input>:\d+:\d+: (.*?)(?: \(in container ''\))?$", str(error), re.MULTILINE)
            raise CelError("; ".join(found) or str(error)) from error


@cache
def condition(text: str, *, is_old_optional: bool = False) -> CelExpression:
    """An expression that is true or false. Raises CelError as `compiled`, and for one of another type."""
    found = compiled(text, is_old_optional=is_old_optional)
    if found.type_name not in ("BOOL", "DYN"):
        raise CelError(f"it is no condition, but of type {found.type_name}")
    return found


def celvalue(value: Any, schema: Schema, *, is_root: bool = False) -> Any:
    """A JSON value for CEL: names of fields are escaped, times and numbers typed; of metadata only names are seen."""
    if isinstance(value, dict):
        found: dict[str, Any] = {}
        for key, item in value.items():
            if item is None:  # for the server, a null field is absent
                continue
            child, is_field = schema.child(key)
            seen = {name: item[name] for name in _NAMES if name in item} if is_root and key == "metadata" else item
            found[_escaped(key) if is_field else key] = celvalue(seen, child)
        return found
    if isinstance(value, list):
        return [celvalue(item, schema.element) if schema.element else item for item in value]
    if isinstance(value, int | float) and not isinstance(value, bool) and schema.type in _NUMBERS:
        return _NUMBERS[schema.type](value)
    return _formatted(value, schema.format) if isinstance(value, str) and schema.format in _FORMATS else value


_NUMBERS: Final[dict[str, Callable[[Any], Any]]] = {"integer": int, "number": float}
_FORMATS: Final = frozenset({"date", "date-time", "duration", "byte"})


def _formatted(text: str, form: str) -> Any:
    """A text as its format types it; one that is wrong stays as it is."""
    from google.protobuf.duration_pb2 import Duration  # noqa: PLC0415 - optional
    from google.protobuf.timestamp_pb2 import Timestamp  # noqa: PLC0415

    try:
        if form == "byte":
            return b64decode(text, validate=True)
        if form == "duration":
            length = Duration()
            length.FromTimedelta(compiled("duration(self)").of(text, None))
            return length
        moment = Timestamp()
        moment.FromJsonString(f"{text}T00:00:00Z" if form == "date" else text)
    except (CelError, NotBase64Error, ValueError):
        return text
    return moment


def _escaped(name: str) -> str:
    """A field's name as an identifier."""
    if _RESERVED.fullmatch(name):
        return f"__{name}__"
    return re.sub(r"__|[./-]", lambda found: _ESCAPES[found.group()], name)


def _as_server(text: str) -> str:
    """The error of an evaluation."""
    if found := re.search(r"Key not found in map : (.*)", text, re.DOTALL):
        return f"no such key: {found.group(1).strip(chr(34))}"
    if found := re.search(r"Index error: index=(-?\d+)", text):
        return f"index out of bounds: {found.group(1)}"
    if found := re.search(r"No matching overloads found : (?:\([^)]*\)\.)?(\w*)", text):
        name = found.group(1)
        return "no such overload" if name.startswith("_") else f"no such overload: {name}"
    return re.sub(r"^[A-Z_]+: ", "", text).replace("divide by zero", "division by zero")


@cache
def _environment(*, has_old: bool) -> Any:
    from cel_expr_python import cel  # noqa: PLC0415 - optional
    from cel_expr_python.ext import ext_bindings, ext_encoders, ext_math, ext_optional, ext_strings  # noqa: PLC0415

    dyn, text, truth = cel.Type.DYN, cel.Type.STRING, cel.Type.BOOL
    many, texts = cel.Type.List(dyn), cel.Type.List(text)

    def member(name: str, *overloads: tuple[Sequence[Any], Any, Callable[..., Any]]) -> Any:
        made = [
            cel.Overload(f"k8s_{name}_{number}", return_type=gives, parameters=[*takes], is_member=True, impl=what)
            for number, (takes, gives, what) in enumerate(overloads)
        ]
        return cel.FunctionDecl(name, made)

    def of_sets(name: str, what: Callable[[list[Any], list[Any]], bool]) -> Any:
        made = cel.Overload(f"k8s_sets_{name}", return_type=truth, parameters=[many, many], impl=what)
        return cel.FunctionDecl(f"sets.{name}", [made])

    # Origin of the functions: k8s.io/apiserver/pkg/cel/library, and cel-go's sets.
    functions = [
        member("find", ([text, text], text, _find)),
        member("findAll", ([text, text], texts, _find_all), ([text, text, cel.Type.INT], texts, _find_all)),
        member("isSorted", ([many], truth, _is_sorted)),
        member("sum", ([many], dyn, sum)),
        member("min", ([many], dyn, _least)),
        member("max", ([many], dyn, _greatest)),
        of_sets("contains", lambda these, those: all(each in these for each in those)),
        of_sets("intersects", lambda these, those: any(each in these for each in those)),
        of_sets("equivalent", lambda a, b: all(each in a for each in b) and all(each in b for each in a)),
    ]
    extensions = (
        ext_bindings.ExtBindings(),
        ext_encoders.ExtEncoders(),
        ext_math.ExtMath(),
        ext_optional.ExtOptional(),
        ext_strings.ExtStrings(),
    )
    old = {"oldSelf": dyn, "_old": dyn, "_had": truth} if has_old else {}
    return cel.NewEnv(variables={"self": dyn, **old}, extensions=extensions, functions=functions)


def _find(text: str, pattern: str) -> str:
    found = re.search(pattern, text)
    return found.group() if found else ""


def _find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    found = [each.group() for each in re.finditer(pattern, text)]
    return found if limit < 0 else found[:limit]


def _is_sorted(items: list[Any]) -> bool:
    return all(this <= later for this, later in pairwise(items))


def _least(items: list[Any]) -> Any:
    if not items:
        raise ValueError("min called on empty list")
    return min(items)


def _greatest(items: list[Any]) -> Any:
    if not items:
        raise ValueError("max called on empty list")
    return max(items)
