"""Users of NATS with keys: seeds, and accounts with JWTs as an operator signs them."""

import base64
import json
import secrets
import time
from pathlib import Path
from typing import Any

from levelog_log.transport.nkeys import SEED, USER, Nkey, encode

OPERATOR = 14 << 3
ACCOUNT = 0


def new_seed(kind: int = USER) -> str:
    """A fresh seed."""
    return encode(bytes((SEED | kind >> 5, (kind & 0x1F) << 3)) + secrets.token_bytes(32))


class Accounts:
    """An operator with one account that has JetStream; `settings` are for a server that trusts it."""

    def __init__(self) -> None:
        self._operator, self._account = Nkey.from_seed(new_seed(OPERATOR)), Nkey.from_seed(new_seed(ACCOUNT))
        system = Nkey.from_seed(new_seed(ACCOUNT))
        unlimited = dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1)
        stored = dict.fromkeys(("mem_storage", "disk_storage", "streams", "consumer"), -1)
        plain, storing = {"limits": unlimited}, {"limits": {**unlimited, **stored}}
        operator = self._token(self._operator, self._operator, "operator", {"system_account": system.public})
        accounts = {
            system.public: self._token(self._operator, system, "account", plain),
            self._account.public: self._token(self._operator, self._account, "account", storing),
        }
        self.settings = (
            f"operator: {operator}\nsystem_account: {system.public}\nresolver: MEMORY\n"
            f"resolver_preload: {json.dumps(accounts)}\n"
        )

    def write_credentials(self, file: Path, *, seconds: int = 3600, **permissions: Any) -> Path:
        """A credentials file of a new user, valid for so long."""
        seed = new_seed()
        limits: dict[str, Any] = {"subs": -1, "data": -1, "payload": -1, **permissions}
        jwt = self._token(self._account, Nkey.from_seed(seed), "user", limits, ends=int(time.time()) + seconds)
        file.touch(mode=0o600)
        file.write_text(
            f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n"
            "************************* IMPORTANT *************************\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
        )
        return file

    @staticmethod
    def _token(issuer: Nkey, subject: Nkey, kind: str, claims: dict[str, Any], ends: int = 0) -> str:
        body: dict[str, Any] = {
            "jti": secrets.token_hex(16),
            "iat": int(time.time()),
            "iss": issuer.public,
            "sub": subject.public,
            "name": kind,
            "nats": {"type": kind, "version": 2, **claims},
        }
        if ends:
            body["exp"] = ends
        parts = [_base64(json.dumps(part).encode()) for part in ({"typ": "JWT", "alg": "ed25519-nkey"}, body)]
        return ".".join((*parts, _base64(issuer.sign(".".join(parts).encode()))))


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
