"""The story of examples/lastnight, recorded: a pod that bears the label of a Web is deleted by the operator."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from levelog_cli.loading import load_operators
from levelog_store.tables import intents
from rigs.levelog import WEBS_FILE, Levelog
from rigs.nats import NatsServer
from rigs.processing import Processing
from rigs.webs import deleted, pod, receipt, web

LASTNIGHT = WEBS_FILE.parents[1] / "lastnight"
BAD, FIXED = LASTNIGHT / "webs.py", LASTNIGHT / "fixed.py"
SHOP = "webs.example.com/default/shop"
ORDERS = "pods/default/migrate-orders"


class LastNight:
    """What was recorded, as a log with a database and as a bundle, and the records that count."""

    def __init__(self, levelog: Levelog, env: dict[str, str], bundle: Path) -> None:
        self.levelog = levelog
        self.env = env
        self.bundle = bundle
        self.stranger = self.receipt = self.gone = self.scaled = self.refused = 0

    @property
    def sources(self) -> list[tuple[list[str], dict[str, str]]]:
        """Options and environment that name the bundle, and the log."""
        return [(["--bundle", str(self.bundle)], {}), ([], self.env)]


@asynccontextmanager
async def record_last_night(folder: Path) -> AsyncGenerator[LastNight]:
    """Record it; the log is there as long as the context lasts."""
    url = f"sqlite:///{folder}/levelog.db"
    labels = {"app": "shop"}
    stranger = pod("migrate-orders", 6, image="shop-migrations:42", labels=labels)
    async with NatsServer() as nats:
        env = {"LEVELOG_NATS_URL": nats.url, "LEVELOG_DATABASE_URL": url, "LEVELOG_APPLICATION": "webs"}
        night = LastNight(Levelog(folder), env, folder / "night.jsonl")
        async with Processing(nats.url, url, load_operators([BAD])) as stack:
            own = [pod(f"shop-{n}", 2 + n, owner="uid-shop", labels=labels) for n in range(2)]
            stack.start()
            await stack.folded(await stack.listed(web("shop", 1, replicas=2), *own, version=5))
            night.stranger = await stack.tell(stranger)
            await stack.folded(night.stranger)
            await stack.claim()
            [row] = await stack.rows(intents)
            night.receipt = await stack.tell(receipt(row, version=7))
            night.gone = await stack.tell(deleted(stranger, 7))
            await stack.folded(night.gone)
            night.scaled = await stack.tell(web("shop", 8, replicas=2, image="b"))
            await stack.folded(night.scaled)
            await stack.claim()
            for row in await stack.rows(intents):
                if row["state"] == "claimed":
                    night.refused = await stack.tell(receipt(row, outcome="failed", error="exceeded quota"))
            await stack.folded(night.refused)
            await stack.folded(await stack.tell(web("shop", 9, replicas=2, image="c")))
        written = await night.levelog.ends("export", night.bundle, env=env)
        assert written.status == 0, written.stderr
        yield night
