"""Domains: names at a registrar, which is often busy, and a token of each that is renewed once a day.

Run it with `REGISTRAR_URL=http://127.0.0.1:8080 levelog run examples/domains/domains.py` after `kubectl apply -f
examples/domains/crd.yaml`.
"""

import json
import os
from datetime import timedelta
from http import HTTPStatus
from http.client import HTTPConnection
from urllib.parse import quote, urlsplit

from levelog import GiveUp, Operator, Resource, Retry, Struct


class Settings(Struct, frozen=True):
    registrar: str


renewal = timedelta(seconds=float(os.environ.get("RENEWAL_SECONDS", "86400")))
op = Operator("domains", settings=Settings(os.environ.get("REGISTRAR_URL", "http://127.0.0.1:8080")))


class DomainSpec(Struct):
    address: str


class Domain(Resource, group="example.com", version="v1", plural="domains"):
    spec: DomainSpec


@op.on.create(timeout=timedelta(seconds=15))
@op.on.update
@op.on.delete
def register(domain: Domain, reason: str, idempotency_key: str, settings: Settings) -> None:
    """Enter the name, move it to another address, or give it back: what was handled last is what the registrar has."""
    method = "DELETE" if reason == "delete" else "PUT"
    ask(settings, method, f"/domains/{quote(domain.metadata.name)}", domain.spec.address, idempotency_key)


@op.timer(every=renewal, initial_delay=renewal)
def renew(domain: Domain, idempotency_key: str, settings: Settings) -> None:
    """A new token each day, counted from the last one, also if nothing ran for a while."""
    ask(settings, "POST", f"/domains/{quote(domain.metadata.name)}/token", "", idempotency_key)


def ask(settings: Settings, method: str, path: str, address: str, key: str) -> None:
    """One request, which may be repeated under its key; what is in no doubt is said by `Retry` and `GiveUp`."""
    url = urlsplit(settings.registrar)
    connection = HTTPConnection(url.hostname or "", url.port, timeout=10)
    try:
        connection.request(method, path, json.dumps({"address": address}), {"Idempotency-Key": key})
        answer = connection.getresponse()
        text = answer.read().decode(errors="replace")
        if answer.status == HTTPStatus.SERVICE_UNAVAILABLE:
            raise Retry("the registrar is busy", delay=timedelta(seconds=int(answer.getheader("Retry-After", "5"))))
        if answer.status >= HTTPStatus.BAD_REQUEST:
            raise GiveUp(f"the registrar says {answer.status}: {text}")
    finally:
        connection.close()
