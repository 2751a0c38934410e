"""Fixtures for all tests: real servers, started when a test asks for them."""

import gc

import pytest

from rigs import fixtures
from rigs.run import leftovers
from rigs.run.bytecode import import_a_part
from rigs.run.examples import choose_examples
from rigs.run.memory import write_to_memory
from rigs.run.slowed import slow_down
from rigs.run.spread import check_groups, spread, workers

write_to_memory()


def pytest_configure(config: pytest.Config) -> None:
    choose_examples(config)
    slow_down()
    for plugin in (fixtures, leftovers):
        config.pluginmanager.register(plugin)  # those of leftovers are for examples/, too
    if hasattr(config, "workerinput"):
        gc.disable()  # until all tests are collected: nothing is garbage before, and to look for it takes a fifth


def pytest_collection(session: pytest.Session) -> None:
    import_a_part(session.config)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    return workers()


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    spread(items)


def pytest_collection_finish(session: pytest.Session) -> None:
    check_groups(session)
    fixtures.prepare_binaries(session)
    gc.enable()
    gc.freeze()  # all modules of tests are loaded: no collection need look at them again
