"""The fixtures `simulate` and `decides_as_recorded`, and the mark `levelog_history`. pytest finds them by itself.

Loaded at each start of pytest where levelog is installed, so that it imports nothing of levelog before a test asks.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from levelog.operator import Operator
    from levelog_testing.simulation import Simulate, Simulation

_MARK: Final = "levelog_history"
_FIXTURE: Final = "decides_as_recorded"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what levelog's fixtures ask for."""
    parser.getgroup("levelog").addoption(
        "--levelog-update",
        action="store_true",
        help="rewrite bundles of levelog_history where operators decide otherwise than they say",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known."""
    config.addinivalue_line(
        "markers", "levelog_history(bundle): what `levelog export` wrote, in a file beside that of the test"
    )


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Refuse a test that is marked and asks for nothing: it would pass whatever the operators decide."""
    if item.get_closest_marker(_MARK) and _FIXTURE not in getattr(item, "fixturenames", (_FIXTURE,)):
        pytest.fail(f"a test with the mark {_MARK} takes {_FIXTURE} as an argument, and calls it", pytrace=False)


@pytest.fixture
def decides_as_recorded(request: pytest.FixtureRequest) -> "Callable[..., None]":
    """Fails the test if operators do not decide as the bundle of its mark says: `decides_as_recorded(op)`.

    With --levelog-update the bundle is rewritten instead. `application=` where it is not named as the first operator.
    """

    def check(*operators: "Operator", application: str = "") -> None:
        from levelog_base.errors import ConfigurationError  # noqa: PLC0415 - takes a second, as what follows
        from levelog_testing.recordings import differs  # noqa: PLC0415

        mark = request.node.get_closest_marker(_MARK)
        if mark is None or len(mark.args) != 1:
            pytest.fail('say which bundle: @pytest.mark.levelog_history("shop.jsonl")', pytrace=False)
        is_updated = bool(request.config.getoption("--levelog-update"))
        bundle = Path(request.path).parent / mark.args[0]
        try:
            told = differs(bundle, operators, application=application, is_updated=is_updated)
        except ConfigurationError as error:
            pytest.fail(str(error), pytrace=False)
        if told:
            if not is_updated:
                pytest.fail(f"{told}\n(--levelog-update records what is decided now)", pytrace=False)
            request.node.add_report_section("call", "levelog", f"{told}: rewritten")

    return check


@pytest.fixture
def simulate() -> "Iterator[Simulate]":
    """Starts a simulation of operators, `simulate(op)`, as often as it is called; typed by levelog.testing.Simulate."""
    from levelog_testing.simulation import Simulation  # noqa: PLC0415 - takes a second

    with ExitStack() as stack:

        def start(*operators: "Operator", **options: Any) -> "Simulation":
            return stack.enter_context(Simulation(*operators, **options))

        yield start
