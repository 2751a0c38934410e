import asyncio
import json
from pathlib import Path

import pytest

from rigs.audit import AuditLog

pytestmark = pytest.mark.long  # of a rig, which seldom changes


def line(audit_id: str, stage: str, verb: str = "create", code: int = 0) -> str:
    content = {
        "auditID": audit_id,
        "stage": stage,
        "verb": verb,
        "requestURI": f"/api/v1/namespaces/default/pods/{audit_id}",
        "requestReceivedTimestamp": "2026-01-02T03:04:05.678901Z",
        "user": {"username": "admin", "groups": ["system:masters"]},
        "objectRef": {"resource": "pods", "namespace": "default", "name": audit_id, "apiVersion": "v1"},
        "responseStatus": {"code": code},
    }
    return json.dumps(content) + "\n"


@pytest.fixture
def log(tmp_path: Path) -> AuditLog:
    return AuditLog(tmp_path / "audit.log")


def append(log: AuditLog, *texts: str) -> None:
    with log.path.open("a") as file:
        file.writelines(texts)


async def test_a_log_that_does_not_exist_yet_holds_no_requests(log: AuditLog) -> None:
    assert await log.requests() == []


async def test_requests_are_reported_once_all_that_were_received_are_answered(log: AuditLog) -> None:
    append(log, line("a", "RequestReceived"), line("b", "RequestReceived"), line("b", "ResponseComplete", code=201))
    asking = asyncio.create_task(log.requests())
    await asyncio.wait([asking], timeout=0.1)
    assert not asking.done()
    append(log, line("a", "ResponseComplete", code=409))
    assert [(request.name, request.code) for request in await asking] == [("b", 201), ("a", 409)]
    assert [write.name for write in await log.writes()] == ["b"]


async def test_a_watch_is_reported_when_it_starts_and_only_then(log: AuditLog) -> None:
    append(log, line("w", "RequestReceived", "watch"), line("w", "ResponseStarted", "watch", 200))
    assert [request.verb for request in await log.requests()] == ["watch"]
    append(log, line("w", "ResponseComplete", "watch", 200))
    assert [request.verb for request in await log.requests()] == ["watch"]


async def test_a_line_that_is_half_written_is_read_when_it_is_complete(log: AuditLog) -> None:
    text = line("a", "ResponseComplete", code=201)
    append(log, line("a", "RequestReceived"), text[:50])
    asking = asyncio.create_task(log.requests())
    await asyncio.wait([asking], timeout=0.1)
    append(log, text[50:])
    assert [request.code for request in await asking] == [201]


async def test_what_a_killed_server_did_not_answer_is_reported_without_a_code(log: AuditLog) -> None:
    append(log, line("a", "RequestReceived"), line("a", "ResponseComplete", code=201)[:50])
    log.forget_open()
    append(log, line("b", "RequestReceived"), line("b", "ResponseComplete", code=201))
    assert [(request.name, request.code) for request in await log.requests()] == [("a", 0), ("b", 201)]
    assert [write.name for write in await log.writes()] == ["b"]
