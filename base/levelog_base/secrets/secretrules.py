"""Redaction rules: environment variables, annotations, and paths in objects of a resource."""

import re
from collections.abc import Iterable, Iterator
from fnmatch import translate
from functools import lru_cache
from typing import Any, Final, TypeAlias

from msgspec import Struct, field

from levelog_base.errors import ConfigurationError
from levelog_base.wire.canonical import canonical, digest

ITEMS: Final = "[]"
ANY: Final = "*"
Path: TypeAlias = tuple[str, ...]
"""Names from an object's top, `*` for any name or item, `[]` for any item of a list."""

MANIFEST_ANNOTATIONS: Final = (
    "*/last-applied*",  # kubectl, and banzaicloud's objectmatcher
    "*/last-handled-configuration",  # Kopf
    "kapp.k14s.io/original",
    "objectset.rio.cattle.io/applied",
)
"""Annotations in which tools keep the manifest of their object, secrets included."""

_ANNOTATION: Final = "annotation:"
_ENVIRONMENT: Final = "env:"
_RESOURCE: Final = re.compile(r"[a-z][a-z0-9-]*(\.[a-z0-9-]+)*")
_STEP: Final = re.compile(r"(?P<items>\[\])|\[\"(?P<quoted>[^\"]+)\"\]|(?P<name>[^.\[\]\"]+)|(?P<wrong>.)")
ENVIRONMENTS: Final = ("env", "Env")
"""How names of lists of variables end: `env`, `extraEnv`."""
_WAY: Final = 2
"""Raised when the same rules replace other values, or by other hashes."""
_CLASS: Final = re.compile(r"[\[\]?]")
"""What patterns of files have besides *; no name has it."""
_SHAPE: Final = "it is RESOURCE:PATH (webs.example.com:spec.password), annotation:NAME or env:NAME"


class Named(Struct, frozen=True):
    """Names that are meant, with `*` for any part of one; those of `plain` are excepted."""

    patterns: tuple[str, ...]
    plain: tuple[str, ...] = ()

    def __contains__(self, name: str) -> bool:
        return _matches(self.patterns, name) and not _matches(self.plain, name)


class Rules(Struct, frozen=True, kw_only=True):
    """What is redacted besides the values of Secrets."""

    environment: Named = Named(("*",))
    """Variables with a literal value, in any list `env`, by their names."""
    annotations: Named = Named(MANIFEST_ANNOTATIONS)
    fields: dict[str, tuple[Path, ...]] = field(default_factory=dict[str, tuple[Path, ...]])
    """Paths by `resource.group`."""

    @classmethod
    def parse(cls, entries: Iterable[str]) -> "Rules":
        """The default rules with those of a user; `!` before an entry excepts what it names.

        Raises ConfigurationError naming the entry.
        """
        given = list(entries)
        environment, annotations = Named(("*",)), Named(MANIFEST_ANNOTATIONS)
        fields: dict[str, tuple[Path, ...]] = {}
        for entry in given:
            rule, is_plain = entry.removeprefix("!"), entry.startswith("!")
            if rule.startswith(_ENVIRONMENT):
                environment = _with(environment, rule.removeprefix(_ENVIRONMENT), entry, is_plain=is_plain)
            elif rule.startswith(_ANNOTATION):
                annotations = _with(annotations, rule.removeprefix(_ANNOTATION), entry, is_plain=is_plain)
            elif is_plain:
                raise ConfigurationError(
                    f"redaction rule {entry!r}: only env: and annotation: rules can be exempted with !"
                )
            else:
                resource, _, path = rule.partition(":")
                if not _RESOURCE.fullmatch(resource) or not path:
                    raise ConfigurationError(f"redaction rule {entry!r}: {_SHAPE}")
                fields[resource] = (*fields.get(resource, ()), _path(path, entry))
        return cls(environment=environment, annotations=annotations, fields=fields)

    @property
    def digest(self) -> str:
        """Identity of the rules, whatever their order."""
        parts = [sorted(n) for each in (self.environment, self.annotations) for n in (each.patterns, each.plain)]
        paths = {resource: sorted(set(found)) for resource, found in self.fields.items()}
        return digest(canonical([_WAY, parts, paths]))

    def may_concern(self, resource: str, body: bytes) -> bool:
        """Tell, without decoding, whether an object may hold something that is redacted."""
        if resource in self.fields or b'"Secret"' in body or any(f'{name}"'.encode() in body for name in ENVIRONMENTS):
            return True
        return any(map(body.__contains__, _literal_parts(self.annotations.patterns)))


def places(value: Any, path: Path) -> Iterator[tuple[Any, Any]]:
    """Each (container, key or index) in a tree of JSON that a path leads to."""
    step, below = path[0], path[1:]
    keys: Iterable[Any] = ()
    if isinstance(value, list) and step in (ITEMS, ANY):
        keys = range(len(value))
    elif isinstance(value, dict) and step != ITEMS:
        keys = list(value) if step == ANY else [step] if step in value else []
    for key in keys:
        if below:
            yield from places(value[key], below)
        else:
            yield value, key


def _with(named: Named, pattern: str, entry: str, *, is_plain: bool) -> Named:
    if not pattern:
        raise ConfigurationError(f"redaction rule {entry!r}: {_SHAPE}")
    if wrong := _CLASS.search(pattern):
        raise ConfigurationError(f"redaction rule {entry!r}: {wrong[0]!r} has no meaning there; * stands for any part")
    if is_plain:
        return Named(named.patterns, (*named.plain, pattern))
    return Named((*named.patterns, pattern), named.plain)


def _path(text: str, entry: str) -> Path:
    steps: list[str] = []
    for found in _STEP.finditer(text):
        if found["wrong"] and found["wrong"] != ".":
            raise ConfigurationError(
                f"redaction rule {entry!r}: {found['wrong']!r} has no meaning there; a path is names with dots between "
                'them, * for any name, [] for each item of a list, ["…"] for a name with dots'
            )
        if not found["wrong"]:
            steps.append(found["items"] or found["quoted"] or found["name"])
    if not steps or steps[0] in ("metadata", "apiVersion", "kind", ANY, ITEMS):
        raise ConfigurationError(
            f"redaction rule {entry!r}: a path begins with a field beside metadata, such as spec; "
            "for annotations there is annotation:NAME"
        )
    return tuple(steps)


@lru_cache(maxsize=64)
def _expression(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(translate, patterns)) or r"(?!)")


def _matches(patterns: tuple[str, ...], name: str) -> bool:
    return _expression(patterns).match(name) is not None


@lru_cache(maxsize=64)
def _literal_parts(patterns: tuple[str, ...]) -> tuple[bytes, ...]:
    """The longest part without a wildcard of each pattern: names of annotations are written without escapes."""
    return tuple(max(re.split(r"[*?\[\]]", pattern), key=len).encode() for pattern in patterns)
