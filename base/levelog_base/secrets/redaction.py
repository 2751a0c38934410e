"""Replaces secret values (Secrets, and what `secretrules.py` names) by keyed hashes, which still show changes."""

import hmac
import os
import pathlib
from base64 import b64decode
from binascii import Error as Base64Error
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from levelog_base.errors import ConfigurationError
from levelog_base.secrets.scrubbing import HASHED, PREFIX, scrub
from levelog_base.secrets.secretrules import ENVIRONMENTS, Named, Path, Rules, places
from levelog_base.wire.canonical import canonical, digest, keys_of
from levelog_base.wire.objects import SECRETS, GroupResource, ObjectKey

if TYPE_CHECKING:
    from random import Random

    from cryptography.hazmat.primitives.ciphers.aead import AESGCM


MIN_KEY_BYTES: Final = 16
MOST_REMEMBERED: Final = 10_000
MOST_CHARACTERS: Final = 4_000_000
"""In all values that are remembered: each text that is about some other object is searched for each of them."""
LONG_ENOUGH: Final = 8
"""Characters from which a value is looked for in texts that are about some other object."""
NO_KEY: Final = (
    "secret values are recorded only as keyed hashes: set LEVELOG_REDACTION_KEY_FILE to a file of at least "
    f"{MIN_KEY_BYTES} random bytes"
)


class Redacted(NamedTuple):
    """The content of a write as it may be seen, and the values that were taken out of it."""

    content: Any
    secrets: frozenset[str]


class Redactor:
    """Replaces secret values by HMAC-SHA256 under a key: of Secrets, and those that the rules name.

    A value of a Secret, or under a path, is hashed with its object and place, so that equal values in two objects look
    different. Environment variables and annotations are hashed with their names alone: that a pod has the value of its
    template can be seen. Limit: who has the key can test guesses. Without a key, what has to be replaced is refused.
    """

    def __init__(self, key: bytes | None = None, rules: Rules | None = None, *, is_off: bool = False) -> None:
        if key is not None and len(key) < MIN_KEY_BYTES:
            raise ConfigurationError(f"the redaction key has {len(key)} bytes; it needs at least {MIN_KEY_BYTES}")
        self._key = key
        self.rules = rules or Rules()
        self.is_off = is_off
        self.has_lacked_key = False
        """Something had to be replaced and could not: what follows from it is no answer."""
        self._known: OrderedDict[str, None] = OrderedDict()
        self._known_characters = 0

    @classmethod
    def from_file(cls, file: str | os.PathLike[str] | None, rules: Iterable[str]) -> "Redactor":
        """With the key in a file, or without one; several rules may stand in one text, with commas between them.

        Raises ConfigurationError for a key or a rule that cannot be read.
        """
        parsed = Rules.parse(rule for text in rules for rule in text.split(",") if rule)
        try:
            return cls(None if file is None else pathlib.Path(file).read_bytes().strip(), parsed)
        except OSError as error:
            raise ConfigurationError(f"redaction key file {file} cannot be read: {error.strerror}") from error
        except ConfigurationError as error:
            raise ConfigurationError(f"redaction key file {file}: {error}") from error

    @property
    def digest(self) -> str:
        """Identity of key and rules: what two redactors with the same one make of an object is the same.

        `difference` tells which of them differ.
        """
        if self.is_off:
            return "off"
        key = hmac.digest(self._key or b"", b"levelog redaction key", "sha256")
        return f"{digest(key)}:{self.rules.digest}"

    def is_needed(self, resource: GroupResource) -> bool:
        """Whether objects of the resource always hold what has to be replaced; others may."""
        return not self.is_off and (resource == SECRETS or str(resource) in self.rules.fields)

    def require(self, resource: GroupResource) -> None:
        """Raises ConfigurationError if the resource may not be recorded for want of a key."""
        if self.is_needed(resource):
            self._require_key()

    def redact_body(self, resource: GroupResource, body: bytes) -> bytes:
        """The object's JSON as it may be recorded; the same bytes where nothing is to be replaced."""
        name = str(resource)
        if self.is_off or not (resource == SECRETS or self.rules.may_concern(name, body)):
            return body
        self.require(resource)
        content: Any = msgspec.json.decode(body)
        metadata = content.get("metadata") or {}
        place = (name, str(metadata.get("namespace", "")), str(metadata.get("name", "")))
        return msgspec.json.encode(content) if _Pass(self, place).replace(content) else body

    def redact_manifest(
        self, resource: GroupResource, manifest: dict[str, Any], *, namespace: str = ""
    ) -> dict[str, Any]:
        """The object as it may be recorded; given as it is written, so that wanted and recorded objects compare.

        `namespace` is that of a manifest that names none. Raises ConfigurationError if something has to be replaced and
        there is no key.
        """
        metadata: Mapping[str, Any] = manifest.get("metadata") or {}
        place = str(metadata.get("namespace") or namespace), str(metadata.get("name", ""))
        key = ObjectKey(group=resource.group, resource=resource.resource, namespace=place[0], name=place[1])
        found: dict[str, Any] = self.redact_content(key, manifest).content
        return found

    def redact_content(self, key: ObjectKey, content: Any) -> Redacted:
        """What is written to an object, as it may be seen: a manifest, a merge patch, or a JSON patch.

        The content itself where nothing is to be replaced. Raises as `redact_manifest`.
        """
        if self.is_off or not content:
            return Redacted(content, frozenset())
        body = canonical(content)
        resource = str(key.group_resource)
        if not (key.group_resource == SECRETS or isinstance(content, list) or self.rules.may_concern(resource, body)):
            return Redacted(content, frozenset())
        work = _Pass(self, (resource, key.namespace, key.name))
        copy: Any = msgspec.json.decode(body)
        if not (work.replace_in_patch(copy) if isinstance(copy, list) else work.replace(copy)):
            return Redacted(content, frozenset())
        secrets = frozenset(work.found) - {key.name, key.namespace}
        self._remember(secrets)
        return Redacted(copy, secrets)

    def redact_text(self, text: str, secrets: Iterable[str] = ()) -> str:
        """A text of somebody else's without these values, and without long ones that were redacted lately."""
        return text if self.is_off or not text else scrub(text, {*secrets, *self._known})

    def refuse_history(self, what: str, begun: str) -> None:
        """Raises ConfigurationError for a history, by its digest, in which other hashes stand for the same values.

        Without a key there are none to compare: `has_lacked_key` tells afterwards whether one was needed.
        """
        how = "" if self._key is None and not self.is_off else difference(begun, self.digest)
        if how:
            raise ConfigurationError(
                f"{what} was recorded {how}, so that its hashes cannot be compared: give --redaction-key-file, "
                "--redact and --redaction (or their variables) as the processes had them, or no key"
            )

    def refuse_hashes(self, what: str, content: bytes) -> None:
        """Raises ConfigurationError for JSON that is to be written and holds what was redacted when it was read."""
        if not self.is_off and HASHED.search(content):
            raise ConfigurationError(
                f"{what}: it holds a hash that stands for a redacted value, which levelog never saw and cannot write: "
                "refer to the value (valueFrom, secretKeyRef), or except it from redaction"
            )

    def seal(self, content: bytes, about: str) -> bytes:
        """Encrypt and sign what has to be kept and holds redacted values; `about` has to be given again to open it.

        Raises ConfigurationError without a key.
        """
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + _cipher(self._require_key()).encrypt(nonce, content, about.encode())

    def unseal(self, sealed: bytes, about: str) -> bytes:
        """What was sealed. Raises ConfigurationError without the key that it was sealed with, or if it was changed."""
        from cryptography.exceptions import InvalidTag

        try:
            return _cipher(self._require_key()).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], about.encode())
        except (InvalidTag, ValueError) as error:
            raise ConfigurationError(
                "cannot decrypt an intent: it was encrypted with another redaction key, or was changed since; give all "
                "processes the same --redaction-key-file"
            ) from error

    def hash(self, parts: Iterable[str], value: bytes) -> str:
        """What stands for a value in a place."""
        return PREFIX + self._digest(parts, value).hex()

    def chance(self, parts: Iterable[str]) -> "Random":
        """A source of chance that is always the same for these parts, and that nobody without the key can foretell.

        Raises ConfigurationError without a key.
        """
        from random import Random

        return Random(self._digest(("chance", *parts), b""))  # noqa: S311 - its seed is a keyed digest, drawn from once

    def _digest(self, parts: Iterable[str], value: bytes) -> bytes:
        state = hmac.new(self._require_key(), digestmod=sha256)
        for part in parts:
            data = part.encode(errors="surrogatepass")
            state.update(len(data).to_bytes(4, "big") + data)
        state.update(value)
        return state.digest()

    def _require_key(self) -> bytes:
        if self._key is None:
            self.has_lacked_key = True
            raise ConfigurationError(NO_KEY)
        return self._key

    def _remember(self, secrets: Iterable[str]) -> None:
        for value in secrets:
            if len(value) >= LONG_ENOUGH:
                self._known_characters += len(value) * (value not in self._known)
                self._known[value] = None
                self._known.move_to_end(value)
        while len(self._known) > MOST_REMEMBERED or self._known_characters > MOST_CHARACTERS:
            value, _ = self._known.popitem(last=False)
            self._known_characters -= len(value)


def difference(begun: str, own: str) -> str:
    """How a log was begun, by its digest, that this process would not go on with; empty if it would.

    A log in which no digest is noted is taken as it is.
    """
    if begun in ("", own):
        return ""
    if "off" in (begun, own):
        return "without redaction" if begun == "off" else "with redaction"
    (key, _, rules), (own_key, _, own_rules) = begun.partition(":"), own.partition(":")
    differing = ["another redaction key"] * (key != own_key) + ["other rules of redaction"] * (rules != own_rules)
    return f"with {' and '.join(differing)}"


class _Pass:
    """One object whose values are replaced, in place."""

    def __init__(self, redactor: Redactor, place: tuple[str, str, str]) -> None:
        self._redactor = redactor
        self._resource, self._namespace, self._name = place
        self.found: set[str] = set()
        self._top: Any = None
        """The Secret that the object is, if it is one: others stand in it or in something else."""

    def replace(self, content: Any) -> bool:
        """Replace what the rules name; tells whether there was anything."""
        if not isinstance(content, dict):
            return False
        rules, is_secret = self._redactor.rules, self._resource == str(SECRETS)
        self._top = content if is_secret else None
        has_replaced = is_secret and self._replace_data(content, None)
        has_replaced |= self._walk(content, rules.environment, rules.annotations)
        for path in rules.fields.get(self._resource, ()):
            has_replaced |= self._replace_path(content, path)
        return has_replaced

    def replace_in_patch(self, operations: list[Any]) -> bool:
        """Replace values of a JSON patch, each as if it stood where its pointer says."""
        has_replaced = False
        for operation in operations:
            if not isinstance(operation, dict) or "value" not in operation:
                continue
            steps = keys_of(str(operation.get("path", "")))
            for in_lists in (True, False):  # whether a number is an index or a name, the pointer does not say
                tree, holder, last = _around(steps, operation["value"], in_lists=in_lists)
                if self.replace(tree):
                    operation["value"] = holder[last]
                    has_replaced = True
                    break
        return has_replaced

    def _replace_data(self, content: dict[str, Any], about: Any) -> bool:
        """Replace the values of a Secret; `about` are the metadata of one that stands in another object."""
        has_replaced = False
        named = about if isinstance(about, dict) else {}
        place = (str(named.get("namespace") or self._namespace), str(named.get("name") or self._name))
        for field in ("data", "stringData"):
            values = content.get(field)
            if not isinstance(values, dict):
                continue
            for name, value in values.items():
                text = str(value)
                plain = text.encode(errors="surrogatepass")
                if field == "data" and text.startswith(PREFIX):
                    continue  # redacted before: the colon stands in no base64
                if field == "data":
                    with suppress(Base64Error, ValueError):  # what is none, the API refuses: it is hashed as it stands
                        plain = b64decode(plain, validate=True)
                    self.found.add(text)
                with suppress(UnicodeDecodeError):
                    self.found.add(plain.decode())
                values[name] = self._redactor.hash((*place, name), plain)
                has_replaced = True
        return has_replaced

    def _walk(self, value: Any, environment: Named, annotations: Named) -> bool:
        has_replaced = False
        if isinstance(value, list):
            for item in value:
                if isinstance(item, dict | list):
                    has_replaced |= self._walk(item, environment, annotations)
            return has_replaced
        if value is not self._top and value.get("kind") == "Secret":
            has_replaced |= self._replace_data(value, value.get("metadata"))
        for name, below in value.items():
            if name.endswith(ENVIRONMENTS) and isinstance(below, list):
                has_replaced |= self._replace_environment(below, environment)
            elif name == "env" and isinstance(below, dict):
                has_replaced |= self._replace_variables(below, environment)
            elif name == "annotations" and isinstance(below, dict):
                has_replaced |= self._replace_annotations(below, annotations)
            elif isinstance(below, dict | list):
                has_replaced |= self._walk(below, environment, annotations)
        return has_replaced

    def _replace_environment(self, variables: list[Any], named: Named) -> bool:
        has_replaced = False
        for variable in variables:
            if isinstance(variable, dict):
                has_replaced |= self._replace_variable(variable, "value", str(variable.get("name", "")), named)
            elif isinstance(variable, list):
                has_replaced |= self._walk(variable, named, self._redactor.rules.annotations)
        return has_replaced

    def _replace_variables(self, variables: dict[str, Any], named: Named) -> bool:
        has_replaced = [self._replace_variable(variables, name, name, named) for name in variables]
        return self._walk(variables, named, self._redactor.rules.annotations) or any(has_replaced)

    def _replace_variable(self, holder: dict[str, Any], key: str, name: str, named: Named) -> bool:
        value = holder.get(key)
        if isinstance(value, bool) or not isinstance(value, str | int | float) or value == "" or name not in named:
            return False
        holder[key] = self._hashed("env", self._namespace, name, str(value))
        return True

    def _replace_annotations(self, values: dict[str, Any], named: Named) -> bool:
        has_replaced = False
        for name, text in values.items():
            if isinstance(text, str) and text and name in named:
                values[name] = self._hashed("annotation", self._namespace, name, text)
                has_replaced = True
        return has_replaced

    def _replace_path(self, content: dict[str, Any], path: Path) -> bool:
        has_replaced = False
        for holder, key in list(places(content, path)):
            has_replaced |= self._replace_leaves(holder, key, ".".join(path))
        return has_replaced

    def _replace_leaves(self, holder: Any, key: Any, path: str) -> bool:
        """Replace a text or number, or all of them below; true, false and null say too little to be hidden."""
        value = holder[key]
        if isinstance(value, dict | list):
            has_replaced = False
            for each in value if isinstance(value, dict) else range(len(value)):
                has_replaced |= self._replace_leaves(value, each, path)
            return has_replaced
        if value is None or isinstance(value, bool) or value == "":
            return False
        holder[key] = self._hashed("path", self._resource, self._namespace, self._name, path, str(value))
        return True

    def _hashed(self, *parts: str) -> str:
        *place, text = parts
        self.found.add(text)
        return self._redactor.hash(place, text.encode(errors="surrogatepass"))


def _around(steps: list[str], value: Any, *, in_lists: bool) -> tuple[Any, Any, Any]:
    """A tree that has the value at the end of the steps: the tree, what holds the value, and under which key."""
    root: list[Any] = [value]
    holder: Any = root
    key: Any = 0
    for step in steps:
        is_index = in_lists and (step.isdigit() or step == "-")
        inner: Any = [value] if is_index else {step: value}
        holder[key] = inner
        holder, key = inner, 0 if is_index else step
    return root[0], holder, key


_NONCE_BYTES: Final = 12  # NIST SP 800-38D, section 8.2.2: random, for at most 2**32 messages under one key
_PURPOSE: Final = b"levelog intent bodies, AES-256-GCM, 1"


@lru_cache(maxsize=4)
def _cipher(key: bytes) -> "AESGCM":
    """AES-256-GCM; only sealing and unsealing load its library."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return AESGCM(HKDF(algorithm=SHA256(), length=32, salt=None, info=_PURPOSE).derive(key))
