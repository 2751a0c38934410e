"""What must never reach the log: values of Secrets, replaced by keyed hashes that still show when they change."""

import hmac
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from typing import Any, Final

import msgspec

from levelog.errors import ConfigurationError
from levelog.objects import GroupResource
from levelog.resources import Manifest

SECRETS: Final = GroupResource(group="", resource="secrets")
MIN_KEY_BYTES: Final = 16
_PREFIX: Final = "hmac-sha256:"


class Redactor:
    """Replaces each value of a Secret by an HMAC-SHA256 of its namespace, name, key and decoded value.

    Equal values in two Secrets look different; a value in `data` and the same one in `stringData` look alike. Limit:
    who has the key can test guesses. Without a key Secrets cannot be redacted and are refused.
    """

    def __init__(self, key: bytes | None = None) -> None:
        if key is not None and len(key) < MIN_KEY_BYTES:
            raise ConfigurationError(f"the redaction key has {len(key)} bytes; it needs at least {MIN_KEY_BYTES}")
        self._key = key

    def is_needed(self, resource: GroupResource) -> bool:
        """Whether objects of the resource hold what has to be replaced."""
        return resource == SECRETS

    def require(self, resource: GroupResource) -> None:
        """Raises ConfigurationError if the resource may not be recorded for want of a key."""
        if self.is_needed(resource) and self._key is None:
            raise ConfigurationError(
                "Secrets are recorded only with a key to redact them: set LEVELOG_REDACTION_KEY_FILE to at least "
                f"{MIN_KEY_BYTES} random bytes"
            )

    def redact_body(self, resource: GroupResource, body: bytes) -> bytes:
        """The object's JSON as it may be recorded; the same bytes where nothing is to be replaced."""
        if not self.is_needed(resource):
            return body
        return msgspec.json.encode(self.redact_manifest(resource, msgspec.json.decode(body)))

    def redact_manifest(self, resource: GroupResource, manifest: Manifest) -> Manifest:
        """The object as it may be recorded; given as it is written, so that wanted and recorded objects compare.

        Raises ConfigurationError for a Secret if there is no key.
        """
        if not self.is_needed(resource):
            return manifest
        self.require(resource)
        metadata: Mapping[str, Any] = manifest.get("metadata") or {}
        state = hmac.new(self._key or b"", digestmod=sha256)
        _add(state, str(metadata.get("namespace", "")))
        _add(state, str(metadata.get("name", "")))
        redacted = dict(manifest)
        for field in ("data", "stringData"):
            values = manifest.get(field)
            if isinstance(values, Mapping):
                redacted[field] = {
                    name: _replace(state.copy(), name, value, is_encoded=field == "data")
                    for name, value in values.items()
                }
        return redacted


def _replace(state: hmac.HMAC, name: str, value: Any, *, is_encoded: bool) -> Any:
    plain = str(value).encode()
    if is_encoded and plain.startswith(_PREFIX.encode()):
        return value  # redacted before: the colon stands in no base64
    if is_encoded:
        with suppress(Base64Error):  # what is none, the API refuses: it is hashed as it stands
            plain = b64decode(plain, validate=True)
    _add(state, name)
    state.update(plain)
    return _PREFIX + state.hexdigest()


def _add(state: hmac.HMAC, text: str) -> None:
    data = text.encode()
    state.update(len(data).to_bytes(4, "big") + data)
