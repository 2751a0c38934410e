"""The operator that the machines run: every way to read, and a reconcile that applies and deletes.

The functions that say what a level is are kept apart from the ones that are registered, so that the reference calls
the same ones on plain dictionaries.
"""

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol

from levelog import ABSENT, Index, Intent, Level, Manifest, Objects, Operator, Owner, Resource, Struct, apply, delete
from levelog.levels import Levels, LevelStatus
from levelog.resources import LabelledResource

BEGIN: Final = datetime(2026, 1, 1, tzinfo=UTC)
LAST_DEADLINE: Final = BEGIN + timedelta(minutes=5)
"""Of the Webs that users make."""
GROUP: Final = "example.com"
CHANGING: Final = "uncle"
"""A view whose code may change; nobody is given its levels."""
AWAITED: Final = ("parts", "members", CHANGING)
"""Views for whose levels somebody waits, as daemons do."""
UNKNOWN: Final = "?"
"""Color for which index functions raise."""


class WebSpec(Struct):
    config: str = "c0"
    size: int = 1
    team: str = "a"
    deadline: int = 0
    """Minutes after BEGIN."""


class Web(Resource, group=GROUP, version="v1", plural="webs"):
    spec: WebSpec


class RackSpec(Struct):
    webs: tuple[str, ...] = ()
    size: int = 1


class Rack(Resource, group=GROUP, version="v1", plural="racks"):
    spec: RackSpec


class PartSpec(Struct):
    color: str = ""


class Part(Resource, group=GROUP, version="v1", plural="parts"):
    spec: PartSpec


class LabelledPart(LabelledResource, group=GROUP, version="v1", plural="parts", kind="Part"):
    spec: PartSpec


class ConfigSpec(Struct):
    color: str


class Config(Resource, group=GROUP, version="v1", plural="configs"):
    spec: ConfigSpec


PlainIndex = Mapping[Any, Collection[Any]]
"""What an index looks like to the functions that say what a level is."""


class Lookup(Protocol):
    """What looking up an object looks like to them."""

    def get(self, resource: type[Config], name: str) -> Config | None: ...


def color_of(configs: PlainIndex, name: str) -> str:
    """Color that a config gives; `@other` refers to another one, `!` cannot be understood."""
    color = next(iter(configs[name]), "none")
    if color.startswith("@"):
        color = next(iter(configs[color[1:]]), "none")
    if color == "!":
        raise ValueError(f"config {name} has no color")
    return color


def parts_level(web: Web, owned: PlainIndex, configs: PlainIndex) -> Level[dict[str, str]]:
    color = color_of(configs, web.spec.config)
    desired = {f"{web.metadata.name}-{n}": color for n in range(web.spec.size)}
    return Level(desired, dict(owned[web.as_owner]))


def members_level(web: Web, by_team: PlainIndex) -> Level[dict[str, int]]:
    team = web.spec.team
    if team == "*":
        return Level({}, {each: len(by_team[each]) for each in by_team})
    return Level({}, {team: len(by_team[team])} if team in by_team else {})


def lateness_level(web: Web, now: datetime) -> Level[bool]:
    deadline = BEGIN + timedelta(minutes=web.spec.deadline)
    is_late = now >= deadline
    return Level(desired=False, actual=is_late, recheck_at=None if is_late else deadline)


def paint_level(part: LabelledPart, objects: Lookup) -> Level[str]:
    wanted = part.metadata.labels.get("config", "")
    config = objects.get(Config, wanted) if wanted else None
    return Level(config.spec.color if config else part.spec.color, part.spec.color)


def state_level(_: Part, levels: Levels) -> Level[dict[str, str]]:
    return Level({}, shown(levels))


def kin_level(part: Part, levels: Levels) -> Level[dict[str, str]]:
    owner = next((each for each in part.metadata.owner_references if each.controller), None)
    return Level({}, shown(levels.of(Web, owner.name)) if owner else {})


def uncle_level(web: Web, levels: Levels) -> Level[dict[str, str]]:
    return Level({}, shown(levels.of(Part, f"{web.metadata.name}-0")))


def family_level(_: Rack, levels: Levels) -> Level[dict[str, dict[str, str]]]:
    return Level({}, {"": shown(levels), **{name: shown(each) for name, each in levels.children().items()}})


def overview_level(config: Config, levels: Levels) -> Level[dict[str, str]]:
    web = {"red": "w0", "blue": "w1"}.get(config.spec.color, config.spec.color)
    return Level({}, shown(levels.of(Web, web)) | shown(levels.of(Part, "w0-0")))


def shown(levels: Mapping[str, LevelStatus]) -> dict[str, str]:
    """How levels stand, as far as it wakes who reads it."""
    return {name: f"{each.status}; {each.reason}; {sorted(each.drift.items())}" for name, each in levels.items()}


def owned_entries(part: Part) -> Iterator[tuple[Owner, tuple[str, str]]]:
    if part.spec.color == UNKNOWN:
        raise ValueError("no such color")
    if owner := part.metadata.controlled_by(Web):
        yield owner, (part.metadata.name, part.spec.color)


def by_team_entries(part: LabelledPart) -> Iterator[tuple[str, str]]:
    team = part.metadata.labels.get("team")
    if team == "!":
        raise ValueError("no such team")
    if team:
        yield team, part.metadata.name


def configs_entries(config: Config) -> Iterator[tuple[str, str]]:
    if config.spec.color == UNKNOWN:
        raise ValueError("no such color")
    yield config.metadata.name, config.spec.color


def wanted_intents(web: Web, level: Level[dict[str, str]]) -> Iterator[Intent]:
    for name in sorted(level.drift.missing | level.drift.changed):
        yield apply(
            {
                "apiVersion": f"{GROUP}/v1",
                "kind": "Part",
                "metadata": {"name": name, "labels": {"app": "web", "team": "a"}},
                "spec": {"color": level.desired[name]},
            }
        )
    for name in sorted(level.drift.extra):
        yield delete(Part, name)


Heard = Callable[[str, Any], None]
"""Told of each call of a view or reconcile function: its name and the parent."""


def make_operator(heard: Heard) -> Operator:
    """The operator; `heard` is called first thing by each view and reconcile function."""
    op = Operator("machine")

    @op.index(labels={"app": "web"})
    def owned(part: Part) -> Iterable[tuple[Owner, tuple[str, str]]]:
        return owned_entries(part)

    @op.index
    def by_team(part: LabelledPart) -> Iterable[tuple[str, str]]:
        return by_team_entries(part)

    @op.index
    def configs(config: Config) -> Iterable[tuple[str, str]]:
        return configs_entries(config)

    @op.view(labels={"paused": ABSENT})
    def parts(web: Web, owned: Index[Owner, tuple[str, str]], configs: Index[str, str]) -> Level[dict[str, str]]:
        heard("parts", web)
        return parts_level(web, owned, configs)

    @op.reconcile(parts)
    async def converge(web: Web, level: Level[dict[str, str]]) -> AsyncIterator[Intent]:
        heard("converge", web)
        for intent in wanted_intents(web, level):
            yield intent

    @op.view
    def members(web: Web, by_team: Index[str, str]) -> Level[dict[str, int]]:
        heard("members", web)
        return members_level(web, by_team)

    @op.view
    def lateness(web: Web, now: datetime) -> Level[bool]:
        heard("lateness", web)
        return lateness_level(web, now)

    @op.view(labels={"app": "web"}, reads=[Config])
    def paint(part: LabelledPart, objects: Objects) -> Level[str]:
        heard("paint", part)
        return paint_level(part, objects)

    @op.view
    def state(part: Part, levels: Levels) -> Level[dict[str, str]]:
        heard("state", part)
        return state_level(part, levels)

    @op.view(levels_of=[Web])
    def kin(part: Part, levels: Levels) -> Level[dict[str, str]]:
        heard("kin", part)
        return kin_level(part, levels)

    @op.view(levels_of=["machine/kin"])
    def uncle(web: Web, levels: Levels) -> Level[dict[str, str]]:
        heard("uncle", web)
        return uncle_level(web, levels)

    @op.children(Rack, of=Web)
    def wanted(rack: Rack) -> Iterator[Manifest]:
        for name in rack.spec.webs:
            yield {
                "apiVersion": f"{GROUP}/v1",
                "kind": "Web",
                "metadata": {"name": name},
                "spec": {"size": rack.spec.size},
            }

    @op.view
    def family(rack: Rack, levels: Levels) -> Level[dict[str, dict[str, str]]]:
        heard("family", rack)
        return family_level(rack, levels)

    @op.view(levels_of=[Web, Part])
    def overview(config: Config, levels: Levels) -> Level[dict[str, str]]:
        heard("overview", config)
        return overview_level(config, levels)

    return op
