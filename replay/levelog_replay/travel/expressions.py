"""A condition on the past, as a Python expression: over objects, levels and writes up to some record."""

import ast
import builtins
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from levelog_base.errors import ConfigurationError
from levelog_base.wire.objects import ObjectKey
from levelog_base.wire.records import LoggedRecord, ObjectDeleted, ObjectSeen
from levelog_history.selection import Selected, ends, is_named
from levelog_processors.state.state import State
from levelog_store.rows import StoredObject, Verdict, ViewParent

_OF_DECISIONS: Final = frozenset({"level", "levels", "wrote"})
_NAMES: Final = frozenset({"object", "objects", "deleted", *_OF_DECISIONS})


class PastState:
    """What there was at some record; State, levels and writes may go on between two questions.

    `follow` takes each record that State has folded, so that a list of objects is not made anew for each question.
    """

    def __init__(self, state: State, levels: Mapping[ViewParent, Verdict], writes: set[tuple[str, str]]) -> None:
        """`writes`: verb and target of each that was decided so far."""
        self.state = state
        self.levels = levels
        self.writes = writes
        self._decoded: dict[str, tuple[StoredObject, Any]] = {}
        self._listed: dict[Selected, dict[str, Any]] = {}
        """Objects that were asked for, by name."""

    def follow(self, logged: LoggedRecord | None) -> None:
        """Bring what was listed up to a record that has just been folded; None: up to any number of them."""
        record = logged.record if logged is not None else None
        if not isinstance(record, ObjectSeen | ObjectDeleted):
            self._listed.clear()  # the end of a list deletes what it had not
            return
        name = str(record.key)
        row = self.state.objects.get(name)
        for selected, found in self._listed.items():
            if row is None:
                found.pop(name, None)
            elif selected.has(record.key):
                found[name] = self._fields(row)

    def object(self, name: str) -> Any:
        """An object, by RESOURCE[.GROUP]/NAMESPACE/NAME."""
        row = self.state.objects.get(name)
        if row is None:
            _require_name(name)
            return NOTHING
        return self._fields(row)

    def objects(self, name: str) -> list[Any]:
        """All objects of a resource, or of one of its namespaces."""
        selected = _selected(name)
        if (found := self._listed.get(selected)) is None:
            places = ((partition, str(selected.resource)) for partition in range(self.state.partitions))
            rows = (self.state.objects[each] for place in places for each in self.state.of_resources.get(place, ()))
            kept = (row for row in rows if selected.has(ObjectKey.parse(row.object)))
            found = self._listed[selected] = {row.object: self._fields(row) for row in kept}
        return list(found.values())

    def deleted(self, name: str) -> bool:
        """Whether an object was there, and is not any more."""
        _require_name(name)
        return name in self.state.tombstones and name not in self.state.objects

    def level(self, parent: str, view: str = "") -> Any:
        """The first level of a parent, by its name or how that ends, and by its view."""
        return next(iter(self.levels_of(parent, view)), NOTHING)

    def levels_of(self, parent: str = "", view: str = "") -> list[Any]:
        """Levels of a parent, of a view, or all."""
        return [
            _Fields({"view": name, "parent": of, **_plain(verdict)})
            for (name, of), verdict in self.levels.items()
            if (not parent or ends(parent, of)) and (not view or is_named(view, name))
        ]

    def wrote(self, verb: str, target: str) -> bool:
        """Whether a write of an object was decided on."""
        _require_name(target)
        return (verb, target) in self.writes

    def _fields(self, row: StoredObject) -> Any:
        known = self._decoded.get(row.object)
        if known is None or known[0] is not row:
            known = self._decoded[row.object] = row, _wrapped(msgspec.json.decode(row.body))
        return known[1]


@lru_cache
def _selected(name: str) -> Selected:
    return Selected.parse(name)


@lru_cache
def _require_name(name: str) -> None:
    """Raise ConfigurationError for what names no object, else the expression would never hold."""
    if Selected.parse(name).key is None:
        raise ConfigurationError(f"{name!r} names no object: write RESOURCE[.GROUP]/NAMESPACE/NAME, with _ for none")


class Expression:
    """A condition, read once."""

    def __init__(self, text: str) -> None:
        """Raises ConfigurationError for what is no expression, or uses names that are not known."""
        self.text = text
        try:
            tree = ast.parse(text.strip(), mode="eval")
            self._code = compile(tree, "<expression>", "eval")
        except (SyntaxError, ValueError, RecursionError) as error:
            raise ConfigurationError(f"{text!r} is no Python expression: {error}") from error
        names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
        made = {node.id for node in names if isinstance(node.ctx, ast.Store)}
        made |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
        used = {node.id for node in names} - made
        if unknown := sorted(used - _NAMES - set(dir(builtins))):
            raise ConfigurationError(f"{text!r}: there is no {unknown[0]}, but {', '.join(sorted(_NAMES))}")
        self.needs_decisions = bool(used & _OF_DECISIONS)
        """It asks for levels or writes, not for objects alone."""

    def on(self, past: PastState) -> Callable[[int], bool]:
        """A function that tells whether it holds now, after a record; raises ConfigurationError where it raises."""
        names = {name: getattr(past, name) for name in _NAMES - {"levels"}} | {"levels": past.levels_of}

        def holds(sequence: int) -> bool:
            try:
                return bool(eval(self._code, {**names}))  # noqa: S307 - typed by who runs the command
            except ConfigurationError:
                raise
            except Exception as error:
                raise ConfigurationError(
                    f"{self.text!r} fails after record {sequence}: {type(error).__name__}: {error}"
                ) from error

        return holds


class _Nothing:
    """A value that is not there: it has nothing in it, and compares with nothing."""

    def __getattr__(self, name: str) -> "_Nothing":
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __getitem__(self, key: object) -> "_Nothing":
        return self

    def __bool__(self) -> bool:
        return False

    def __len__(self) -> int:
        return 0

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __contains__(self, key: object) -> bool:
        return False

    def _compare(self, _: object) -> bool:
        return False

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _compare
    __hash__ = None  # type: ignore[assignment]


NOTHING: Final = _Nothing()


class _Fields:
    """A mapping or a list of JSON: a part by its name or place, NOTHING where there is none."""

    __slots__ = ("_value",)

    def __init__(self, value: Any) -> None:
        self._value = value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]

    def __getitem__(self, key: Any) -> Any:
        try:
            return _wrapped(self._value[key])
        except (LookupError, TypeError):
            return NOTHING

    def __iter__(self) -> Iterator[Any]:
        return map(_wrapped, self._value)

    def __len__(self) -> int:
        return len(self._value)

    def __contains__(self, key: object) -> bool:
        return key in self._value

    def __eq__(self, other: object) -> bool:
        return bool(self._value == (other._value if isinstance(other, _Fields) else other))

    __hash__ = None  # type: ignore[assignment]


def _wrapped(value: Any) -> Any:
    return _Fields(value) if isinstance(value, dict | list) else value


def _plain(verdict: Verdict) -> Mapping[str, Any]:
    plain = {name: getattr(verdict, name) for name in ("status", "reason", "round")} | {"drift": verdict.differing}
    sides = {name: value for name in ("desired", "actual") if (value := getattr(verdict, name)) is not None}
    return plain | {name: msgspec.json.decode(value) for name, value in sides.items()}
