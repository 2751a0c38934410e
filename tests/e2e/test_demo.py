import asyncio
import json
import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


async def test_the_demo_converges_with_no_call_and_no_write_in_vain() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        "from levelog_cli.main import main; main()",
        "demo",
        "--json",
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
    # two pods, none for 3→2→3, one, none for annotations, three deleted and three created
    assert summary["writes"] == 9
    assert summary["spurious_wakes"] == 0
    assert summary["calls"]["webs/converge"] == 4
    assert summary["seconds"] < 60
    assert summary["records"] > 100
    assert sum("no write" in line for line in lines) == 3
    assert max(map(len, lines[:-1])) <= 80
    assert "   log    6 records: 4 of objects, 2 receipts of writes" in lines


def test_the_demo_runs_the_example_itself() -> None:
    for name in ("webs.py", "crd.yaml"):
        assert (ROOT / "cli/levelog_cli/demo" / name).read_bytes() == (ROOT / "examples/webs" / name).read_bytes()
