"""A bundle as a test: operators must decide as recorded, or the bundle is rewritten."""

import re
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from levelog_base.errors import ConfigurationError
from levelog_base.secrets.redaction import NO_KEY, Redactor
from levelog_processors.program import Program
from levelog_replay.bundles.reading import open_bundle, refuse_other
from levelog_replay.bundles.writing import rewrite
from levelog_replay.calling import ReplayCaller
from levelog_replay.choice import Selection
from levelog_replay.comparing import Conclusion, DecisionComparison, part_texts
from levelog_replay.judging import Judge
from levelog_replay.recordedinputs import RecordedReplay
from levelog_replay.tape import Rebuilt

_THREADS: Final = 8
"""For reconcile functions that are not async."""


async def check(path: Path, program: Program, *, application: str, is_updated: bool, redactor: Redactor) -> str:
    """Make the decisions of a bundle again; returns what came out otherwise, nothing if all is as recorded.

    With `is_updated` the bundle is rewritten where anything did: with what is decided now, without what is decided no
    more or cannot be decided again. Raises ConfigurationError for bundles that are damaged, or of other operators, for
    a key that is not the log's, and if secret values are written and there is no key.
    """
    bundle = open_bundle(path)
    refuse_other(bundle, application, program)
    redactor.refuse_history(f"bundle {path}", bundle.redaction)
    comparison = DecisionComparison()
    conclusions: dict[tuple[str, str, int], Conclusion | None] = {}
    async with AsyncExitStack() as stack:
        judge = Judge(Rebuilt(program, bundle.origin), ReplayCaller(threads=_THREADS), redactor=redactor)
        stack.push_async_callback(judge.close)
        replay = RecordedReplay(bundle, Selection(), [judge])
        async for (judged,) in replay.run():
            past = judged.past
            if comparison.take_recorded(judged) is not None or judged.conclusion is None:
                conclusions[past.identity] = judged.conclusion
    if redactor.has_lacked_key:
        raise ConfigurationError(f"bundle {path} cannot be compared, as functions write secret values: {NO_KEY}")
    if not comparison.tallies:
        raise ConfigurationError(f"bundle {path} holds no decisions")
    if not conclusions:
        return ""
    if is_updated:
        rewrite(bundle, conclusions)
    return "\n".join(_lines_of(path, comparison, len(conclusions)))


def text_of_test(bundle: str, module: str, name: str) -> str:
    """A test that holds the operators of a module to a bundle, in a file beside both; `name` says what is tested."""
    named = re.sub(r"\W+", "_", name).strip("_").lower()
    return f"""from collections.abc import Callable

import pytest
from {module} import op

from levelog import Operator


@pytest.mark.levelog_history("{bundle}")
def test_{named}(decides_as_recorded: Callable[[Operator], None]) -> None:
    decides_as_recorded(op)
"""


def _lines_of(path: Path, comparison: DecisionComparison, changed: int) -> Iterator[str]:
    yield f"{changed} of {_total(comparison)} decisions in {path} do not come out as recorded"
    for obstacle, count in sorted(comparison.obstacles.items()):
        yield f"  {count} cannot be made again: {obstacle}"
    first = comparison.first
    if first is None:
        return
    past = first.past
    yield f"the first is {past.view} of {past.parent}, because of record {past.cause}:"
    before, after = first.before, first.after
    if before is None or after is None:
        yield "  it is not made any more"
        return
    for part in first.parts:
        if part == "keys":
            yield f"  writes: {before.writes_text} -> {after.writes_text}"
            continue
        for text in part_texts(part, before.verdict, after.verdict):
            yield f"  {part}: {text}"


def _total(comparison: DecisionComparison) -> int:
    total = comparison.total
    return total.same + total.changed + total.only_before + total.skipped
