"""Claims that wait for their turn: looked up together, however many they are."""

import asyncio
from typing import Any

import msgspec
from sqlalchemy import Engine as SqlEngine
from sqlalchemy import event

from levelog_actuator.heldclaims import RECHECK_SECONDS
from rigs.acting import QUICK, Acting, writes
from rigs.faults import Delay

ONE_AT_A_TIME = msgspec.structs.replace(QUICK, requests=1, group_requests=1)
WRITES = 40


async def test_an_overload_asks_once_a_second_whether_its_claims_are_held(on_sandbox: Acting) -> None:
    looks = 0

    def count(_connection: object, _cursor: object, statement: str, *_: Any) -> None:
        nonlocal looks
        looks += statement.startswith("SELECT intents") and "intents.expires_at >" in statement

    seen = [await on_sandbox.make("configmaps", f"a-{number}") for number in range(WRITES)]
    on_sandbox.proxy.add(Delay(seconds=0.1, stage="answer"), writes, times=None)
    clock = asyncio.get_running_loop().time
    event.listen(SqlEngine, "before_cursor_execute", count)
    try:
        async with on_sandbox.running(ONE_AT_A_TIME):
            began = clock()
            wanted = [on_sandbox.intent("patch", each, body={"data": {"k": "1"}}) for each in seen]
            receipts = await on_sandbox.carried_out(*wanted)
            took = clock() - began
    finally:
        event.remove(SqlEngine, "before_cursor_execute", count)
    assert {each.outcome for each in receipts} == {"written"}
    assert 1 <= looks <= took / RECHECK_SECONDS
