"""Levels that other processes decide on, and views here look up."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence

from levelog_processors.decide.statereader import StateReader
from levelog_processors.state.state import State
from levelog_store.fold.changes import Wake
from levelog_store.rows import IndexKey, LevelRow, ViewParent, is_of_levels, parent_at


def are_of_others(state: State, places: Iterable[IndexKey], leased: Collection[int]) -> bool:
    """Tell whether levels under one of the keys are decided on by a process that holds other partitions."""
    return any(_is_of_others(state, place, leased) for place in places)


def _is_of_others(state: State, place: IndexKey, leased: Collection[int]) -> bool:
    row = state.objects.get(parent_at(place)) if is_of_levels(place) else None
    return row is not None and row.partition not in leased


async def look_around(
    levels_of: Callable[[Sequence[str]], Awaitable[Mapping[ViewParent, LevelRow]]],
    state_reader: StateReader,
    leased: Collection[int],
) -> None:
    """Read them anew, and ask for the levels that look up what has changed."""
    state = state_reader.state
    places = {place: parent_at(place) for place in state.readers if _is_of_others(state, place, leased)}
    if not places:
        return
    levels = await levels_of(sorted({*places.values()}))
    before = {place: state_reader.bucket(place).values for place in places}
    causes: dict[str, int] = {}
    for parent in {*places.values()}:  # which may be looked up under several keys
        for view in state_reader.program.views:
            state.levels.pop((view, parent), None)
        fresh = {(view, parent): row for view in state_reader.program.views if (row := levels.get((view, parent)))}
        state.levels |= fresh
        causes[parent] = max((row.cause for row in fresh.values()), default=0)
    shown = ((place, parent) for place, parent in places.items() if state_reader.bucket(place).values != before[place])
    changed: dict[IndexKey, tuple[int, ...]] = {place: (causes[parent],) for place, parent in shown}
    asked: dict[ViewParent, Wake] = {}
    state.tell(changed, asked)
    state.ask(asked)
