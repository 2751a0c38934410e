"""Stories of which Kopf and levelog have to make the same: the same file of handlers, run by each."""

from collections.abc import Awaitable, Callable
from typing import Final

from rigs.kopfrivals import SHOPS, Case, Rival, Seen
from rigs.waiting import until


async def _has(rival: Rival, field: str, value: object) -> None:
    """Wait until the status of `a` has a value."""

    async def is_there() -> bool:
        return bool(rival.sandbox.user.get(SHOPS, "a").get("status", {}).get(field) == value)

    await until(is_there, f"{field} {value} in the status", seconds=30)


def _patched(field: str) -> Callable[[Rival], Awaitable[Seen]]:
    """Each call is given what the one before it patched, and the last one's patch is there too."""

    async def story(rival: Rival) -> Seen:
        rival.make("a")
        await _has(rival, field, 2)
        told = [each[1:] for each in rival.told(field)]
        return Seen(f"calls by retry and status: {told}", told == [[0, None], [1, 0], [2, 1]])

    return story


async def _going(rival: Rival) -> Seen:
    rival.make("a")
    await rival.tells("made", "a")
    await rival.is_calm()
    rival.delete("a")
    await rival.tells("gone", 2)
    told = [each[1:] for each in rival.told("gone")]
    return Seen(f"calls by retry and status: {told}", told == [[0, None], [1, 0], [2, 1]])


async def _again(rival: Rival) -> Seen:
    rival.make("a")
    await rival.tells("two", 0)
    await _has(rival, "outer/one", 1)
    await rival.is_calm(1)
    rival.stop()
    rival.start()
    await _has(rival, "outer/two", 2)
    told = rival.told("one") + rival.told("two")
    return Seen(f"calls by retry: {told}", told == [["one", 0], ["two", 0], ["two", 1]])


_RAISES: Final = """
{decorator}
def handler(patch, retry, status, **_):
    tell("{field}", retry, status.get("{field}"))
    patch.status["{field}"] = retry
    if retry == 0:
        raise kopf.TemporaryError("not yet", delay=1)
    if retry == 1:
        raise ValueError("wrong")
    raise kopf.PermanentError("no use")
"""

ALIKE: Final = {
    "created": Case(
        "a handler patches the status, then raises",
        _RAISES.format(decorator="@kopf.on.create(*SHOPS, backoff=1)", field="tries"),
        _patched("tries"),
    ),
    "ticking": Case(
        "a timer patches the status, then raises",
        _RAISES.format(decorator="@kopf.timer(*SHOPS, interval=300, backoff=1)", field="ticks"),
        _patched("ticks"),
    ),
    "lasting": Case(
        "a daemon patches the status, then raises",
        _RAISES.format(decorator="@kopf.daemon(*SHOPS, backoff=1)", field="runs"),
        _patched("runs"),
    ),
    "inner": Case(
        "one of two handlers inside of a handler has ended, and the operator is started again",
        """
@kopf.on.create(*SHOPS)
def outer(**_):
    @kopf.subhandler(id="one")
    def one(retry, **_):
        tell("one", retry)
        return 1

    @kopf.subhandler(id="two")
    def two(retry, **_):
        tell("two", retry)
        if retry == 0:
            raise kopf.TemporaryError("not yet", delay=6)
        return 2
""",
        _again,
    ),
    "deleted": Case(
        "a delete handler patches the status, then raises",
        """
@kopf.on.delete(*SHOPS)
def gone(patch, retry, status, **_):
    tell("gone", retry, status.get("gone"))
    patch.status["gone"] = retry
    if retry < 2:
        raise kopf.TemporaryError("not yet", delay=1)
""",
        _going,
    ),
}
"""By name."""
