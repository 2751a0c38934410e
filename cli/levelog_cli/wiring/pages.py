"""`levelog ui`: what the pages show is opened, and served until the command ends."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from levelog_cli.monitoring.listening import ListenAddress
from levelog_cli.printing.lines import print_line
from levelog_cli.servers.databases import open_to_read
from levelog_cli.servers.nats import opened_log
from levelog_cli.settings import Settings
from levelog_cli.wiring.lookback import chosen_scopes
from levelog_replay.bundles.reading import open_bundle
from levelog_ui.past import BundlePast, LivePast, Past
from levelog_ui.server import serving

ADDRESS: Final = "127.0.0.1:8765"
"""Where they are served, unless it is said otherwise."""


async def serve_pages(
    settings: Settings,
    *,
    bundle: Path | None = None,
    address: str = ADDRESS,
    names: Sequence[str] = (),
    path: str = "",
) -> None:
    """Serve them until cancelled, and print their address, or that of the page at a path.

    Raises ConfigurationError as `opened_log`, `chosen_scopes` and `open_bundle` do, and for an address that is taken.
    """
    place = ListenAddress.parse(address, "address")
    async with _opened(settings, bundle) as past, serving(past, place.host, place.port, names=names) as url:
        print_line(f"pages of {past.name}: {url}{path}")
        sys.stdout.flush()
        if not place.is_local:
            sys.stderr.write(f"{place} is reached from elsewhere too, and whoever reaches the pages may read all\n")
        await asyncio.Event().wait()


@asynccontextmanager
async def _opened(settings: Settings, bundle: Path | None) -> AsyncGenerator[Past]:
    if bundle is not None:
        yield BundlePast(open_bundle(bundle))
        return
    async with opened_log(settings) as stream, await open_to_read(settings) as database:
        yield LivePast(stream, database, await chosen_scopes(settings, database))
