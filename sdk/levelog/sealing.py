"""What has to be kept and read again, and is nobody else's to read: encrypted with a key of the redaction key's."""

import os
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from levelog.errors import ConfigurationError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_NONCE_BYTES: Final = 12  # NIST SP 800-38D, section 8.2.2: random, for at most 2**32 messages under one key
_PURPOSE: Final = b"levelog intent bodies, AES-256-GCM, 1"


def seal(key: bytes, content: bytes, about: str) -> bytes:
    """Encrypt and sign; `about` has to be given again to open it, so that it is of no use in another place."""
    nonce = os.urandom(_NONCE_BYTES)
    return nonce + _cipher(key).encrypt(nonce, content, about.encode())


def unseal(key: bytes, sealed: bytes, about: str) -> bytes:
    """What was sealed. Raises ConfigurationError if that was done with another key, or it was changed."""
    from cryptography.exceptions import InvalidTag

    try:
        return _cipher(key).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], about.encode())
    except (InvalidTag, ValueError) as error:
        raise ConfigurationError(
            "what was encrypted cannot be opened: it was with another redaction key, or was changed since"
        ) from error


@lru_cache(maxsize=4)
def _cipher(key: bytes) -> "AESGCM":
    """AES-256-GCM; its library is loaded by whoever seals or opens something, and by nobody else."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return AESGCM(HKDF(algorithm=SHA256(), length=32, salt=None, info=_PURPOSE).derive(key))
