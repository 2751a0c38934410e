"""`levelog ui`: what the pages show is opened, and served until the command ends."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

from levelog_base.errors import ConfigurationError, Unavailable
from levelog_cli.editing.forking import Family
from levelog_cli.loading import load_application
from levelog_cli.monitoring.listening import ListenAddress
from levelog_cli.printing.lines import print_line
from levelog_cli.servers.backing import known_redactor
from levelog_cli.servers.data_dir import DataDir
from levelog_cli.settings import Settings
from levelog_cli.wiring.lookback import opened
from levelog_cli.wiring.rerun import quieten_decisions
from levelog_replay.bundles.reading import open_bundle
from levelog_ui.again import AgainCode, Opened
from levelog_ui.bundlepast import BundlePast
from levelog_ui.past import LivePast, Past
from levelog_ui.server import PageServer, serving

ADDRESS: Final = "127.0.0.1:8765"
"""Where they are served, unless it is said otherwise, or that is taken."""
_PAUSE_SECONDS: Final = 0.5


async def serve_pages(
    settings: Settings,
    *,
    bundle: Path | None = None,
    address: str = "",
    names: Sequence[str] = (),
    code: Path | None = None,
    path: str = "",
    is_early: bool = False,
) -> None:
    """Serve them until cancelled, and print their address, or that of the page at a path.

    An embedded NATS has another port after each start of its application: then log and database are opened anew.
    With `is_early`, they wait for an application that is about to begin. Raises ConfigurationError as `opened`,
    `open_bundle` and `load_application` do, and for an address that is taken.
    """
    place = ListenAddress.parse(address or ADDRESS, "address")
    again = _loaded(settings, code, lambda: _opened(settings, bundle)) if code is not None else None
    server = PageServer(names=(place.host, *names), again=again)
    is_told = False
    async with AsyncExitStack() as stack:
        if again is not None:
            stack.callback(again.close)
        while True:
            if is_early and not settings.nats_url:
                await _another_log(settings, bundle, "")
            url = DataDir(settings.data_dir).running_nats_url()
            try:
                async with _opened(settings, bundle) as past, server.showing(past):
                    if not is_told:
                        serve = serving(server, place.host, place.port, is_any_port=not address)
                        shown = await stack.enter_async_context(serve)
                        _tell(past.name, f"{shown}{path}", place)
                        is_told = True
                    await _another_log(settings, bundle, url)
            except (ConfigurationError, Unavailable):
                if not is_early or is_told:
                    raise
                await asyncio.sleep(_PAUSE_SECONDS)  # it has not made its log or its tables yet


def fork_pages(family: Family, settings: Settings) -> None:
    """Serve the pages of an application that is about to begin, in a process of their own beside it."""
    family.fork("pages", lambda: serve_pages(settings, is_early=True))


def _loaded(settings: Settings, code: Path, opened: Opened) -> AgainCode:
    """The code, which decides for nobody but people who look. Raises as `load_application` does."""
    quieten_decisions(settings)
    loaded = load_application(settings, [code])
    redactor = known_redactor(settings)
    return AgainCode(code, loaded.name, loaded.program, opened, redactor=redactor, threads=settings.threads)


def _tell(name: str, url: str, place: ListenAddress) -> None:
    print_line(f"pages of {name}: {url}")
    sys.stdout.flush()
    if not place.is_local:
        sys.stderr.write(f"{place} is reached from elsewhere too, and whoever reaches the pages may read all\n")


async def _another_log(settings: Settings, bundle: Path | None, url: str) -> None:
    """Wait until the application of the data directory has a NATS other than that; for ever, where there is none."""
    data = DataDir(settings.data_dir)
    while True:
        found = "" if bundle is not None or settings.nats_url else data.running_nats_url()
        if found not in ("", url):
            return
        await asyncio.sleep(_PAUSE_SECONDS)


@asynccontextmanager
async def _opened(settings: Settings, bundle: Path | None) -> AsyncGenerator[Past]:
    if bundle is not None:
        yield BundlePast(open_bundle(bundle))
        return
    async with opened(settings) as found:
        yield LivePast(*found)
