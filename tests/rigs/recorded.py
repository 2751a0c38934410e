"""An application that has decided on Webs, of which one was scaled to 2, 3, 4 and 2."""

from pathlib import Path
from typing import Any

from levelog_base.wire.records import BookmarkNoted, ContactLost
from rigs.levelog import WEBS_FILE, Levelog
from rigs.processing import Processing
from rigs.webs import pod, web

GREEDY = WEBS_FILE.read_text().replace(
    "range(web.spec.replicas)", "range(web.spec.replicas if web.spec.replicas < 4 else 2)"
)
"""The operator with a bug that the record shows which asks for four replicas."""


class Recorded:
    """An application that has decided, and the command that looks back at it."""

    def __init__(self, levelog: Levelog, env: dict[str, str], scaled: int) -> None:
        self.levelog = levelog
        self.env = env
        self.scaled = scaled
        """Sequence of the record that asks for four replicas."""


async def record_webs(nats_url: str, folder: Path) -> Recorded:
    """Record it in a folder; the processors are gone afterwards."""
    url = f"sqlite:///{folder}/levelog.db"
    async with Processing(nats_url, url) as stack:
        scaled = await scale(stack)
    env = {"LEVELOG_NATS_URL": nats_url, "LEVELOG_DATABASE_URL": url, "LEVELOG_APPLICATION": "webs"}
    return Recorded(Levelog(folder), env, scaled)


async def scale(stack: Processing, *marks: BookmarkNoted | ContactLost, **metadata: Any) -> int:
    """Let it make five decisions; returns the sequence of the record that asks for four replicas.

    `marks` come after the first list; `metadata` is of the Web that is scaled.
    """
    pods = [pod(f"shop-{n}", 2 + n, owner="uid-shop") for n in range(2)]
    await stack.begin(web("shop", 1, replicas=2, **metadata), web("other", 5, replicas=1), *pods, version=5)
    for mark in marks:
        await stack.folded(await stack.mark(mark))
    asked: dict[int, int] = {}
    for replicas, version in ((3, 7), (4, 8), (2, 9)):
        asked[replicas] = await stack.tell(web("shop", version, replicas=replicas, **metadata))
        await stack.folded(asked[replicas])
    return asked[4]
