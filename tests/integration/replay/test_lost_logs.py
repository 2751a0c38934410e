"""A replay after NATS has lost its data: decisions on the log that is there are made again, those before are gone."""

import re
import shutil
from pathlib import Path

from levelog_sandbox import Sandbox
from rigs.kinds import manifest
from rigs.levelog import WEBS_FILE, Levelog, define_webs
from rigs.waiting import until


def web(replicas: int) -> dict[str, object]:
    return manifest("Web", "shop", image="one", replicas=replicas)


async def test_decisions_of_a_new_log_are_replayed_and_those_of_the_lost_one_are_said_to_be_gone(
    tmp_path: Path,
) -> None:
    async with Sandbox(pods_run=True) as sandbox:
        await define_webs(sandbox)
        levelog = Levelog(tmp_path, sandbox.kubeconfig(tmp_path / "kubeconfig"))

        async def decided(*, first: int, last: int) -> None:
            with levelog.start("run", WEBS_FILE) as running:
                for replicas in range(first, last + 1):
                    sandbox.user.apply(web(replicas))

                    async def is_settled(replicas: int = replicas) -> bool:
                        is_there = len(sandbox.user.list("pods")) == replicas
                        return is_there and "in_sync" in (await levelog.ends("levels")).stdout

                    await until(is_settled, f"{replicas} pods")
                await running.stops()

        await decided(first=1, last=4)
        shutil.rmtree(levelog.data / "nats")
        await decided(first=5, last=6)
        replayed = (await levelog.ends("replay", WEBS_FILE, env={"COLUMNS": "300"})).stdout
        found = re.search(r"^webs/pods +(\d+) +0 +0 +0 +(\d+)$", replayed, re.MULTILINE)
        assert found, replayed
        same, skipped = map(int, found.groups())
        gone = f"{skipped} skipped: it was made on a log that is gone: the one that is there began later"
        assert same >= 2, replayed
        assert gone in replayed, replayed
