"""Nkeys, the Ed25519 keys of NATS: seeds, credentials files, public keys, signatures.

The package nkeys is published as sources only, which an installation of wheels refuses. The format is base32 of two
bytes of prefix (the first 5 bits say seed, the next 8 its kind), 32 of key, and a CRC-16: https://github.com/nats-io/nkeys.
"""

import base64
import binascii
import re
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

SEED: Final = 18 << 3
USER: Final = 20 << 3
_SEED_BYTES: Final = 36
_BLOCK: Final = r"-+BEGIN {name}-+\s+(\S+)\s+-+END {name}-+"


class Nkey:
    """A key that signs; its seed is not shown."""

    def __init__(self, key: Ed25519PrivateKey, kind: int) -> None:
        self._key = key
        self.kind = kind
        """Prefix of its public key."""

    @classmethod
    def from_seed(cls, seed: str) -> "Nkey":
        """Read a seed, `SU…` for a user's. Raises ValueError, without the seed, if it is none."""
        try:
            raw = base64.b32decode(seed + "=" * (-len(seed) % 8))
        except binascii.Error:
            raise ValueError("it is no base32") from None
        if len(raw) != _SEED_BYTES or raw[0] & 0xF8 != SEED:
            raise ValueError("it is no seed of an nkey")
        if _checksum(raw[:-2]) != raw[-2:]:
            raise ValueError("its checksum is wrong")
        return cls(Ed25519PrivateKey.from_private_bytes(raw[2:-2]), (raw[0] & 0x07) << 5 | raw[1] >> 3)

    @property
    def public(self) -> str:
        """The public key, `U…` for a user's."""
        raw = self._key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        return encode(bytes((self.kind,)) + raw)

    def sign(self, data: bytes) -> bytes:
        """The signature of some bytes, 64 of them."""
        return self._key.sign(data)


def encode(prefixed: bytes) -> str:
    """Prefix and key as text, with the checksum."""
    return base64.b32encode(prefixed + _checksum(prefixed)).decode().rstrip("=")


def parse_credentials(text: str) -> tuple[str, Nkey]:
    """The user's JWT and key that a credentials file holds. Raises ValueError, without a secret, for anything else."""
    jwt = re.search(_BLOCK.format(name="NATS USER JWT"), text)
    seed = re.search(_BLOCK.format(name="USER NKEY SEED"), text)
    if jwt is None or seed is None:
        raise ValueError("it needs a block NATS USER JWT and a block USER NKEY SEED")
    return jwt[1], Nkey.from_seed(seed[1])


def _checksum(data: bytes) -> bytes:
    return binascii.crc_hqx(data, 0).to_bytes(2, "little")  # CRC-16/XMODEM
