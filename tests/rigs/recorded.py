"""An application that has decided on Webs, of which one was scaled to 2, 3, 4 and 2."""

from pathlib import Path

from rigs.levelog import Levelog
from rigs.processing import Processing
from rigs.webs import pod, web


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
        pods = [pod(f"shop-{n}", 2 + n, owner="uid-shop") for n in range(2)]
        await stack.begin(web("shop", 1, replicas=2), web("other", 5, replicas=1), *pods, version=5)
        scaled = 0
        for replicas, version in ((3, 7), (4, 8), (2, 9)):
            last = await stack.tell(web("shop", version, replicas=replicas))
            if replicas == 4:
                scaled = last
            await stack.folded(last)
    env = {"LEVELOG_NATS_URL": nats_url, "LEVELOG_DATABASE_URL": url, "LEVELOG_APPLICATION": "webs"}
    return Recorded(Levelog(folder), env, scaled)
