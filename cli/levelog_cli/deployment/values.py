"""Values that differ between clusters: manifests have a default there, templates of a Helm chart an expression.

An expression stands alone in its place and is written by `toJson`: JSON is YAML, whatever a value holds.
"""

import re
from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct

from levelog_base.wire.manifests import as_yaml

Object = dict[str, Any]
Printer = Callable[[list[Object]], str]
"""Makes YAML documents of objects with values."""

_WIDTH: Final = 1_000
"""No expression is broken into lines."""
_FOREIGN: Final = re.compile(r"\{\{(?! toJson )")
"""Braces of the application's own, as in a name."""
_QUOTED: Final = re.compile(r"""'(\{\{ toJson [^'\n]+ \}\})'|"(\{\{ toJson [^"\n]+ \}\})\"""")
"""An expression as YAML quotes it, and as JSON does."""
_ITEM: Final = re.compile(r"^( *)- \{\{ toJson (.+) \}\}$", re.MULTILINE)


class Value(Struct, frozen=True):
    """Stands for a value in an object, or for further items in a list; manifests leave an empty default out."""

    expression: str
    default: Any


def chart_value(path: str, default: Any) -> Value:
    """A value of the chart, by its path in values.yaml."""
    return Value(f".Values.{path}", default)


def expression(text: str) -> str:
    """An expression in an object, or in quotes in YAML."""
    return f"{{{{ toJson {text} }}}}"


def filled(made: Any, fill: Callable[[Value], Any]) -> Any:
    """An object with what is filled in for each value, unless that is empty."""

    def is_kept(each: Any) -> bool:
        return not isinstance(each, Value) or fill(each) not in ([], {})

    match made:
        case Value():
            return fill(made)
        case dict():
            return {name: filled(each, fill) for name, each in made.items() if is_kept(each)}
        case list():
            return [filled(each, fill) for each in made if is_kept(each)]
        case _:
            return made


def with_defaults(made: Any) -> Any:
    """An object as manifests have it."""
    return filled(made, lambda value: value.default)


def manifests(objects: list[Object]) -> str:
    """The objects as YAML documents."""
    return as_yaml(map(with_defaults, objects), width=_WIDTH)


def quoted_template(objects: list[Object]) -> str:
    """The same, as `template_of` makes a template of it."""
    return as_yaml(filled(objects, lambda value: expression(value.expression)), width=_WIDTH)


def template_of(text: str) -> str:
    """YAML with its expressions as they are, and braces that are none kept from being read as one."""
    unquoted = _QUOTED.sub(r"\1\2", _FOREIGN.sub('{{ "{{" }}', text))
    return _ITEM.sub(r"{{- range \2 }}\n\1- {{ toJson . }}\n{{- end }}", unquoted)
