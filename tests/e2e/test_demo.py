import asyncio
import json
import os
import re
import sys

from levelog_cli.demo.steps import STORY

BETWEEN = "This time it looked between the two changes: "


async def test_the_demo_converges_with_no_call_and_no_write_in_vain() -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", "from levelog_cli.main import main; main()", "demo", "--json"),
        env={name: value for name, value in os.environ.items() if name != "COLUMNS"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    assert err == b""
    lines = out.decode().splitlines()
    summary = json.loads(lines[-1])
    assert summary["converged"] is True
    before_the_pod, at_two = (BETWEEN + then[:20] in out.decode() for then in (STORY[0].then, STORY[1].then))
    # two pods, none for 3→2→3, one, none for annotations, three deleted and three created
    assert summary["writes"] == 9 + 2 * at_two
    assert summary["spurious_wakes"] == 0
    assert summary["calls"]["webs/converge"] == 4 + 2 * at_two
    assert summary["seconds"] < 60
    assert lines[0].startswith("Starts NATS, SQLite and a Kubernetes API in memory")
    [first] = re.findall(r"Records 1 to (\d+) of the log", out.decode())
    causes = re.findall(r"for records? (\d+)", out.decode())
    assert int(first) < int(causes[0])
    assert summary["records"] > 100
    assert sum("no write" in line for line in lines) == 3 - at_two
    assert max(map(len, lines[:-1])) <= 80
    if before_the_pod:
        assert "(409, nothing changed)" in out.decode()
    else:
        assert "   log    6 records: 4 of objects, 2 receipts of writes" in lines
