"""Manifests in files: YAML and JSON as kubectl reads them, and YAML that kubectl and PyYAML read alike."""

import base64
import binascii
import json
import math
import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, NoReturn

import msgspec
import yaml
from msgspec import Struct

from levelog_base.errors import ConfigurationError

Json = dict[str, Any]

_TAGS: Final = "tag:yaml.org,2002:"
_SEPARATOR: Final = re.compile(r"^(?:%.*\n)*---(?=\s|$)", re.MULTILINE)
_BRACE: Final = re.compile(r"(?:---)?\s*(?=\{)")
_MANY: Final = 100_000
"""Values that aliases repeat in a document; Go's reader gives up at a like number."""

# What Go's reader takes for something else than text (go.yaml.in/yaml/v2, resolve.go): part of YAML 1.1, part of 1.2.
_WORDS: Final[dict[str, bool | float | None]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **{sign + word: math.inf for sign in ("", "+", "-") for word in (".inf", ".Inf", ".INF")},
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
}
_INTEGER: Final = re.compile(r"[-+]?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO]?[0-7]+|0|[1-9][0-9]*)")
_MOST_DIGITS: Final = 200
"""Characters of what may still be a number of 64 bits, in binary and with some zeros; Python refuses 4,300 digits."""
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "null": (type(None),),
}
"""What a scalar is that says its type by a tag."""


class Document(Struct, frozen=True):
    """A document of a file: its value, or why it has none."""

    line: int
    value: Any = None
    error: str = ""


class _Refused(Exception):
    """What stands at a line cannot be read."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(why)
        self.line = line


def manifests_of(file: Path) -> list[Json]:
    """The objects of a file, those of a List each. Raises ConfigurationError, naming file and line."""
    found: list[Json] = []
    for each in each_manifest(file):
        if isinstance(each, ConfigurationError):
            raise each
        found.append(each)
    return found


def each_manifest(file: Path) -> Iterator[Json | ConfigurationError]:
    """The objects of a file, and an error for each document or item that is none.

    Raises ConfigurationError for a file that cannot be read.
    """
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror}") from error
    for document in documents(raw):
        where = f"{file}, line {document.line}"
        if document.error:
            yield ConfigurationError(f"{where}: {document.error}")
        elif document.value is not None:  # else comments
            yield from _objects(document.value, where)


def _objects(value: Any, where: str) -> Iterator[Json | ConfigurationError]:
    if not isinstance(value, dict):
        yield ConfigurationError(f"{where}: something that is not an object")
        return
    items, kind = value.get("items"), str(value.get("kind", ""))
    if not (kind.endswith("List") and isinstance(items, list)):
        yield value
        return
    of_items = {"apiVersion": value.get("apiVersion"), "kind": kind.removesuffix("List")} if kind != "List" else {}
    for item in items:
        yield from _objects(of_items | item if isinstance(item, dict) else item, where)


def documents(raw: bytes, *, is_strict: bool = True) -> Iterator[Document]:
    """What kubectl reads: YAML between lines of `---`, or JSON one after the other.

    A broken document ends where the next one begins. Unless `is_strict`, the last of several equal keys counts.
    """
    try:
        text = raw.decode("utf-16" if raw.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig")
    except UnicodeDecodeError as error:
        yield Document(raw.count(b"\n", 0, error.start) + 1, error="this is not UTF-8")
        return
    starts = [0, *(found.start() for found in _SEPARATOR.finditer(text)), len(text)]
    line = 1
    for start, end in pairwise(starts):
        part = text[start:end]
        try:
            if brace := _BRACE.match(part):
                yield from _json(part[brace.end() :], line + brace[0].count("\n"), is_strict=is_strict)
            else:
                yield from _yaml(part, line, is_strict=is_strict)
        except _Refused as refused:
            yield Document(refused.line, error=str(refused))
        line += part.count("\n")


def _json(text: str, line: int, *, is_strict: bool) -> Iterator[Document]:
    """Documents of JSON; else YAML that begins with a brace."""

    def pairs(found: list[tuple[str, Any]]) -> Json:
        made = dict(found)
        if is_strict and len(made) < len(found):
            names = [name for name, _ in found]
            raise _Refused(line, f"{next(name for name in made if names.count(name) > 1)} stands twice in an object")
        return made

    decoder = json.JSONDecoder(
        object_pairs_hook=pairs,
        parse_int=lambda digits: _number(int(digits)),
        parse_float=_json_float,
        parse_constant=_no_number,
    )
    found: list[Document] = []
    at, lines = 0, line
    try:
        while at < len(text):
            value, end = decoder.raw_decode(text, at)
            msgspec.json.encode(value)
            found.append(Document(line, value))
            end += len(text[end:]) - len(text[end:].lstrip())
            line, at = line + text.count("\n", at, end), end
    except UnicodeEncodeError:
        yield Document(line, error="half of a surrogate pair stands in a text")
    except (ValueError, RecursionError):
        yield from _yaml(text, lines, is_strict=is_strict)
    else:
        yield from found


def _no_number(text: str) -> NoReturn:
    raise ValueError(text)


def _json_float(text: str) -> float | int:
    if math.isinf(value := float(text)):
        raise ValueError(text)
    return _number(value)


_Parser: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's, which Go's reader was translated from."""


def _yaml(text: str, line: int, *, is_strict: bool) -> Iterator[Document]:
    parser: Any = None
    try:
        parser = _Parser(text)
        while parser.check_event():
            event = parser.get_event()
            if isinstance(event, yaml.DocumentStartEvent):
                start = line + parser.peek_event().start_mark.line
                yield Document(start, _Reading(parser, line, is_strict=is_strict).value())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        why = ": ".join(part for part in (error.context, error.problem) if part)
        raise _Refused(line + (mark.line if mark else 0), why) from error
    except yaml.reader.ReaderError as error:
        raise _Refused(line + text.count("\n", 0, error.position), error.reason) from error
    except RecursionError as error:
        raise _Refused(line, "too many values inside each other") from error
    finally:
        if parser is not None:
            parser.dispose()


class _Reading:
    """Makes JSON of the events of a document."""

    def __init__(self, parser: Any, line: int, *, is_strict: bool) -> None:
        self._parser = parser
        self._line = line
        self._is_strict = is_strict
        self._anchors: dict[str, tuple[Any, int]] = {}
        """Each value, and how many values it is."""
        self._count = 0
        self._repeated = 0

    def value(self) -> Any:
        event = self._parser.get_event()
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        made: Any
        before = self._count
        self._count += 1
        match event:
            case yaml.ScalarEvent():
                made = self._scalar(event)
                if isinstance(made, float) and not math.isfinite(made):
                    self._refuse(event, f"{event.value} is not a number in JSON")
                made = made if isinstance(made, bool | str | None) else _number(made)
            case yaml.SequenceStartEvent():
                made = list(self._items())
            case _:
                made = self._mapping()
        if event.anchor is not None:
            self._anchors[event.anchor] = made, self._count - before
        return made

    def _alias(self, event: yaml.AliasEvent) -> Any:
        if event.anchor not in self._anchors:
            self._refuse(event, f"there is no anchor {event.anchor} before this alias")
        made, count = self._anchors[event.anchor]
        self._count += count
        self._repeated += count
        if self._repeated > _MANY:
            self._refuse(event, "too many values by aliases")
        return made

    def _items(self) -> Iterator[Any]:
        while not self._parser.check_event(yaml.SequenceEndEvent):
            yield self.value()
        self._parser.get_event()

    def _mapping(self) -> Json:
        made: Json = {}
        merged: Json = {}
        while not self._parser.check_event(yaml.MappingEndEvent):
            key = self._parser.peek_event()
            if isinstance(key, yaml.ScalarEvent) and key.implicit[0] and key.value == "<<":
                self._parser.get_event()
                found = self.value()
                for each in reversed(found if isinstance(found, list) else [found]):
                    if not isinstance(each, dict):
                        self._refuse(key, "<< needs an object, or a list of them")
                    merged |= each
                continue
            name = self._key()
            if name in made and self._is_strict:
                self._refuse(key, f"{name} stands twice in an object")
            made[name] = self.value()
        self._parser.get_event()
        return merged | made

    def _key(self) -> str:
        """A key as text: kubectl, too, takes a number and a boolean for what it prints of them."""
        event = self._parser.peek_event()
        found = self.value()
        if not isinstance(found, bool | float | int | str):
            what = "null is" if found is None else "a list or an object is"
            self._refuse(event, f"a key has to be text, and {what} not")
        if isinstance(found, bool):
            return str(found).lower()
        return f"{found:g}" if isinstance(found, float) else str(found)

    def _scalar(self, event: yaml.ScalarEvent) -> bool | float | str | None:
        text: str = event.value
        if event.implicit[0]:  # neither quotes nor a tag
            return _plain(text)
        kind = (event.tag or "").removeprefix(_TAGS)
        if kind == "binary":
            try:
                return base64.b64decode("".join(text.split()), validate=True).decode(errors="replace")
            except binascii.Error:
                self._refuse(event, "!!binary is followed by no base64")
        if kind in _TYPES:
            found = _plain(text)
            if type(found) not in _TYPES[kind]:
                self._refuse(event, f"{text} is not what !!{kind} stands for")
            return found
        return text

    def _refuse(self, event: Any, why: str) -> NoReturn:
        raise _Refused(self._line + event.start_mark.line, why)


def _plain(text: str) -> bool | float | str | None:
    """What is meant without quotes: `22:22` and `08:00` are texts, `1e3`, `0o644` and `0644` numbers."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "+-.0123456789":
        return text
    digits = text if text[0] == "." else text.replace("_", "")
    if len(digits) <= _MOST_DIGITS and _INTEGER.fullmatch(digits):
        has_old_octal = re.fullmatch(r"[-+]?0[0-7]+", digits) is not None
        value = int(digits, 8 if has_old_octal else 0)
        if -(2**63) <= value < 2**64:
            return value
    if _FLOAT.fullmatch(digits) and math.isfinite(number := float(digits)):
        return number
    return text


def _number(value: float) -> float | int:
    """A number as the API server has it: Go writes 1.0 as 1, and reads what has more than 64 bits as a float."""
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**63 else float(value)
    return int(value) if value.is_integer() and abs(value) < 2**63 else value


def as_yaml(objects: Iterable[Any], *, width: int = 100, is_ascii: bool = False) -> str:
    """The objects as YAML documents; what stands twice is written twice, a text of several lines as it is."""
    return "---\n".join(
        yaml.dump(each, Dumper=_Dumper, sort_keys=False, allow_unicode=not is_ascii, width=width) for each in objects
    )


_BREAKS: Final = re.compile("[\x85\u2028\u2029]")
"""Lines end there too, for some readers."""
_OTHER: Final = "not text"
_NOT_TEXT: Final[Any] = SimpleNamespace(match=lambda text: not isinstance(_plain(text), str))


class _Dumper(yaml.SafeDumper):
    """Puts into quotes what one of the readers would take for something else than text."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = '"' if _BREAKS.search(text) else "|" if "\n" in text else None
    return dumper.represent_scalar(f"{_TAGS}str", text, style=style)


_Dumper.add_representer(str, _text)
_Dumper.add_multi_representer(str, lambda dumper, text: _text(dumper, str(text)))
_Dumper.add_implicit_resolver(_OTHER, _NOT_TEXT, list("+-.0123456789yYnN"))
