"""Finds what looks like a secret in recorded objects and is in clear: by the names of fields, and by values.

Limits: a secret whose field has no name that ends in what it is, or in an argument of its own after its flag (`--token
abc`), is not found, unless its form is known. A plain word under `token` or `password` is taken for the secret itself.
"""

import re
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final, TypeAlias

import msgspec

from levelog_base.secrets.scrubbing import PREFIX
from levelog_base.secrets.secretrules import ENVIRONMENTS, ITEMS

_Steps: TypeAlias = tuple[str, ...]

_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_PASSWORDS: Final = frozenset({"password", "passwd", "passphrase", "pwd"})
_TELLING: Final = _PASSWORDS | {"token", "apikey", "api key", "client secret", "connection string"}
"""How the names of secrets end."""
_VAGUE: Final = frozenset({"secret", "credential", "credentials", "private key"}) | {
    f"{word} key" for word in ("access", "account", "encryption", "master", "secret", "shared", "signing")
}
"""How names end that as often refer to a secret as they hold it."""
_PUBLIC: Final = frozenset({"checksum", "digest", "fingerprint", "hash", "public", "sha"})
"""Words of names of what anybody may see."""
_REFERRING: Final = ("Ref", "Refs", "Selector", "From")
"""How fields end below which names, not values, are given: `secretKeyRef`, `valueFrom`."""

_ENCODED_PEM: Final = "LS0tLS1CRUdJTi"  # base64 of `-----BEGIN`
_PRIVATE_KEY: Final = re.compile(r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY")
_KNOWN: Final = re.compile(
    r"\b(?:AKIA[0-9A-Z]{16}"  # https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_identifiers.html
    r"|gh[pousr]_\w{36}|github_pat_\w{36}|glpat-[\w-]{20}|xox[abprs]-[\w-]{10}|AIza[\w-]{35}|sk_live_\w{16}|hvs\.[\w-]{24}"
    r"|eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10})"  # a JSON web token
    r"|://[^/\s:@$%{]*:[^/\s:@$%{]+@(?!sha\d+:)"  # a URL with a password, not an image with a digest
)
_ASSIGNED: Final = re.compile(
    r"""\s*(?:-{1,2}|-[ ]|export[ ])?["']?(?P<name>[A-Za-z][\w.-]*)["']?\s*[:=]\s*"""
    r"""(?:"(?P<quoted>[^"]+)"|'(?P<single>[^']+)'|(?P<plain>[^\s"'(){}\[\]<>,;$]+)),?\s*""",
    re.VERBOSE,
)
_REFERENCE: Final = re.compile(r"[$/{<%.]|(?i:true|false|none|null)$")
"""How values begin that stand for others: variables, templates, files."""
_NAME: Final = re.compile(r"[\w./:-]+")
_CLASSES: Final = (str.islower, str.isupper, str.isdigit)
_LEAST: Final = 4
_RANDOM: Final = 12
_CHANGES: Final = 4
_MOST_LINES: Final = 2000


def suspects(resource: str, body: bytes) -> set[str]:
    """What in an object looks like a secret and is in clear, each as the rule of redaction that would replace it.

    Values are never part of what is returned.
    """
    content: Any = msgspec.json.decode(body)
    return {_rule(resource, steps) for steps in _found(content, (), is_referring=False)}


def _found(value: Any, steps: _Steps, *, is_referring: bool) -> Iterator[_Steps]:
    match value:
        case dict():
            named = value.get("name")
            for name, below in value.items():
                own = named if name == "value" and isinstance(named, str) else name
                if isinstance(below, dict | list):
                    yield from _found(below, (*steps, name), is_referring=is_referring or name.endswith(_REFERRING))
                elif _is_secret(below) or (not is_referring and _is_named_secret(own, below)):
                    is_variable = own is not name and len(steps) > 1 and steps[-2].endswith(ENVIRONMENTS)
                    yield ("env", own) if is_variable else (*steps, name)
        case list():
            for item in value:
                if isinstance(item, dict | list):
                    yield from _found(item, (*steps, ITEMS), is_referring=is_referring)
                elif _is_secret(item):
                    yield (*steps, ITEMS)
        case _:
            pass


def _is_named_secret(name: str, value: Any) -> bool:
    """Tell by the name of a field, and by what stands there."""
    words = [word.lower() for word in _WORDS.findall(name)]
    if not words or isinstance(value, bool) or not isinstance(value, str | int | float) or _PUBLIC & set(words):
        return False
    text = str(value)
    if not text or text.startswith(PREFIX) or _REFERENCE.match(text):
        return False
    ends = {words[-1], " ".join(words[-2:])}
    if not isinstance(value, str) or text.isdigit():
        return bool(ends & _PASSWORDS)
    return bool(ends & _TELLING) or (bool(ends & _VAGUE) and (_NAME.fullmatch(text) is None or _is_random(text)))


def _is_secret(value: Any) -> bool:
    """Tell by the value alone."""
    if not isinstance(value, str) or value.startswith(PREFIX):
        return False
    if _KNOWN.search(value) or _PRIVATE_KEY.search(value) or _PRIVATE_KEY.search(_decoded(value)):
        return True
    if not value.startswith("-") and "\n" not in value:
        return False
    return any(map(_assigns_secret, value.splitlines()[:_MOST_LINES]))


def _assigns_secret(line: str) -> bool:
    """A line of a file, or an argument: `db.password=…`."""
    found = _ASSIGNED.fullmatch(line)
    if found is None:
        return False
    plain = found["plain"]
    value = plain or found["quoted"] or found["single"]
    if len(value) < _LEAST or (plain and not any(map(str.isdigit, plain))):  # a word of some language
        return False
    return _is_named_secret(found["name"], value)


def _decoded(value: str) -> str:
    """The beginning of PEM in base64; empty for anything else."""
    if not value.startswith(_ENCODED_PEM):
        return ""
    try:
        return b64decode(value[:64] + "=" * (-len(value[:64]) % 4)).decode(errors="replace")
    except Base64Error:
        return ""


def _is_random(text: str) -> bool:
    """Long, and no words: small letters, capitals and digits follow each other."""
    kinds = [next((n for n, is_kind in enumerate(_CLASSES) if is_kind(each)), None) for each in text]
    changes = sum(one != other for one, other in pairwise(kind for kind in kinds if kind is not None))
    return len(text) >= _RANDOM and changes >= _CHANGES


def _rule(resource: str, steps: _Steps) -> str:
    match steps:
        case ("env", name):
            return f"env:{name}"
        case (*_, "annotations", name) if "metadata" in steps:
            return f"annotation:{name}"
        case _:
            path = "".join(
                step if step == ITEMS else f".{step}" if re.fullmatch(r"[\w-]+", step) else f'["{step}"]'
                for step in steps
            )
            return f"{resource}:{path.removeprefix('.')}"
