"""Tests of the operator: `pytest examples/domains`. The registrar of some of them listens on a port of this machine."""

from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from domains import Domain, DomainSpec, Settings, op, register, renew
from levelog import GiveUp, Retry
from levelog.resources import Metadata
from levelog.testing import Simulation


def domain(address: str = "192.0.2.1") -> dict[str, Any]:
    metadata = {"name": "shop.example", "namespace": "default"}
    return {"apiVersion": "example.com/v1", "kind": "Domain", "metadata": metadata, "spec": {"address": address}}


def test_the_registrar_is_told_the_newest_address_also_if_it_was_busy_meanwhile() -> None:
    told: list[str] = []
    is_busy = True

    def registrar(domain: Domain) -> None:
        if is_busy:
            raise Retry("busy", delay=timedelta(minutes=1))
        told.append(domain.spec.address)

    with Simulation(op) as simulation:
        simulation.stub(register, registrar)
        simulation.apply(domain())
        simulation.run()
        assert simulation.level("register", "default", "shop.example").status == "settling"
        simulation.apply(domain("192.0.2.2"))
        is_busy = False
        simulation.advance(timedelta(minutes=2))
        assert told == ["192.0.2.2"]
        simulation.delete(Domain, "shop.example", namespace="default")
        simulation.run()
        assert told == ["192.0.2.2", "192.0.2.2"]


def test_a_token_is_renewed_once_a_day() -> None:
    times: list[timedelta] = []
    with Simulation(op) as simulation:
        begin = simulation.now
        simulation.stub(renew, lambda _: times.append(simulation.now - begin))
        simulation.apply(domain())
        simulation.advance(timedelta(days=3, hours=1))
        assert times == [timedelta(days=1), timedelta(days=2), timedelta(days=3)]


class Registrar(BaseHTTPRequestHandler):
    """Answers with the status that the domain's name begins with."""

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(int(self.path.removeprefix("/domains/")[:3]))
        self.send_header("Retry-After", "7")
        self.end_headers()
        self.wfile.write(self.headers["Idempotency-Key"].encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - so it is called there
        """Say nothing."""


@pytest.fixture
def settings() -> Iterator[Settings]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Registrar)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield Settings(registrar=f"http://127.0.0.1:{server.server_port}")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def asked(name: str, settings: Settings) -> None:
    found = Domain(metadata=Metadata(name=name), spec=DomainSpec(address="192.0.2.1"))
    register(found, "create", "key-1", settings)


def test_what_the_registrar_answers_is_done_tried_again_or_given_up(settings: Settings) -> None:
    asked("200.example", settings)
    with pytest.raises(Retry) as busy:
        asked("503.example", settings)
    assert busy.value.delay == timedelta(seconds=7)
    with pytest.raises(GiveUp, match="the registrar says 409: key-1"):
        asked("409.example", settings)
