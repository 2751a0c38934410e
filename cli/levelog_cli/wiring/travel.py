"""History as it would have been otherwise: opened, decided again, and printed."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path

import yaml
from msgspec import Struct

from levelog.errors import ConfigurationError
from levelog_cli.printing.comparisons import differing_json, differing_lines
from levelog_cli.printing.forms import print_plain
from levelog_cli.printing.lines import print_lines
from levelog_cli.printing.progress import Bars
from levelog_cli.servers.backing import known_redactor
from levelog_cli.settings import Settings
from levelog_cli.wiring.rerun import load_choice, open_chosen, quieten
from levelog_history.reach import so_long
from levelog_replay.choice import Choice
from levelog_replay.travel.edits import Edits
from levelog_replay.versions import Versions


class WantedEdits(Struct, frozen=True, kw_only=True):
    """What is to be changed, as it is typed."""

    dropped: Sequence[int]
    swapped: tuple[int, int] | None
    delay: str
    value: tuple[int, str] | None

    def edits(self) -> Edits:
        """The same, read. Raises ConfigurationError."""
        edits = Edits(
            dropped=frozenset(self.dropped),
            swapped=self.swapped,
            delay=_duration(self.delay) if self.delay else timedelta(),
            values=_value(*self.value) if self.value else None,
        )
        if not edits.named and not edits.delay:
            raise ConfigurationError(
                "nothing is to be changed: give --drop, --swap, --set or --delay-receipt; `levelog replay FILE "
                "--against OTHER` compares code on history as it was"
            )
        if len(edits.named) < len(self.dropped) + len(self.swapped or ()) + bool(self.value):
            raise ConfigurationError("a record is named twice: change each in one way")
        return edits


async def show_what_if(
    settings: Settings, file: Path, changes: WantedEdits, *, code: Path, bundle: Path | None, as_json: bool
) -> bool:
    """Decide on history as it was and as it is changed, and print what differs; tells whether nothing does.

    Raises ConfigurationError for files and records that there is nothing of.
    """
    edits = changes.edits()
    quieten(settings)
    choice = Choice(file=file, against=str(code), is_in_order=True, bundle=bundle)
    applications = load_choice(settings, choice)
    async with AsyncExitStack() as stack:
        redactor = known_redactor(settings)
        history, _ = await open_chosen(stack, settings, choice, applications)
        redactor.refuse_history(f"bundle {bundle}" if bundle else "the log", history.redaction)
        names = ("then", "now") if code == file else (file.name, code.name)
        versions = Versions(
            programs=[each.program for each in applications],
            names=names,
            redactor=redactor,
            threads=settings.threads,
            allows_network=False,
            stops=None,
            following=Bars().following,
        )
        found = [each async for each in versions.differing(history, edits)]
    if as_json:
        print_plain(differing_json(found))
    else:
        print_lines(differing_lines(found, names))
    return not found


def _duration(text: str) -> timedelta:
    try:
        found = so_long(text)
    except OverflowError:
        found = None
    if not found:
        raise ConfigurationError(f"--delay-receipt {text}: write how long, as in 3s (s, m, h, d)")
    return found


def _value(sequence: int, text: str) -> tuple[int, str, object]:
    path, is_given, value = text.partition("=")
    if not is_given:
        raise ConfigurationError(f"--set {sequence} {text}: write FIELD=VALUE, as in spec.replicas=2")
    try:
        return sequence, path, yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise ConfigurationError(f"--set {sequence} {text}: the value is no YAML") from error
