"""Operators in another program: as a coroutine of its event loop, or to their end as `levelog run` runs them."""

import os
from collections.abc import Sequence
from typing import Any

import msgspec

from levelog.operator import Operator
from levelog_base.errors import ConfigurationError
from levelog_cli.running import execute, first_error
from levelog_cli.settings import LogFormat, Settings
from levelog_cli.wiring.expanding import application_for_cluster
from levelog_cli.wiring.roles import EVERYTHING
from levelog_cli.wiring.stack import run_stack


async def run(*operators: Operator, **settings: Any) -> None:
    """Watch, decide and write in the event loop of the program, until cancelled.

    `settings` are the options of `levelog run`, as in `data_dir="/var/lib/shop"` or `namespace=["team-*"]`; of the
    variables only KUBECONFIG counts. Signals and logging stay those of the program. What fails first ends it and is
    raised: ConfigurationError for settings or operators that cannot be, OperatorError, or another LevelogError.
    """
    # Progress bars are for terminals that are levelog's own: with lines of JSON there are none.
    given = _settings({**settings, "log_format": LogFormat.JSON})
    given.check()
    try:
        await _run(given, operators)
    except BaseExceptionGroup as group:
        raise first_error(group) from group


def run_to_end(*operators: Operator, **settings: Any) -> None:
    """Run as `levelog run` does, with its logs: signals end it, errors end the process with a sentence and a status."""
    given = _settings(settings)
    execute(given, lambda: _run(given, operators))


async def _run(settings: Settings, operators: Sequence[Operator]) -> None:
    await run_stack(settings, await application_for_cluster(settings, operators), EVERYTHING)


def _settings(given: dict[str, Any]) -> Settings:
    if unknown := sorted(given.keys() - {*Settings.__struct_fields__}):
        raise ConfigurationError(f"there is no setting {unknown[0]!r}: docs/configuration.md has all")
    namespaces = given.get("namespace")
    given |= {"namespace": [namespaces]} if isinstance(namespaces, str) else {}
    try:
        return msgspec.convert(
            {"kubeconfig": os.environ.get("KUBECONFIG", ""), **given}, Settings, dec_hook=lambda cls, value: cls(value)
        )
    except (msgspec.ValidationError, TypeError) as error:
        raise ConfigurationError(f"a setting cannot be used: {error}") from error
