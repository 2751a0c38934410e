"""Flags and variables: the same names, and the flag wins."""

from math import inf, nan
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from msgspec.structs import fields
from typer.testing import CliRunner

from levelog_base.errors import ConfigurationError
from levelog_cli.commands.declaring import taking
from levelog_cli.settings import LogFormat, LogLevel, Settings, flag, misspelt, variable
from rigs.invoked import invoke

NAMES = [field.name for field in fields(Settings)]


def parsed(*arguments: str, env: dict[str, str] | None = None) -> Settings:
    """What a command that takes every setting makes of a command line."""
    found: list[Settings] = []

    @taking(*(name for name in NAMES if name not in ("log_format", "log_level", "debug")))
    def command(settings: Settings) -> None:
        found.append(settings)

    app = typer.Typer()
    app.command()(command)
    result = CliRunner().invoke(app, list(arguments), env={variable(name): "" for name in NAMES} | (env or {}))
    assert result.exit_code == 0, result.output
    return found[0]


def test_without_flags_and_variables_every_setting_has_its_default() -> None:
    assert parsed() == Settings()


def test_every_flag_has_the_variable_of_its_name() -> None:
    differently = {"kubeconfig": "KUBECONFIG"}  # kubectl's name
    assert {name: variable(name) for name in NAMES} == {
        name: differently.get(name, "LEVELOG_" + flag(name).removeprefix("--").replace("-", "_").upper())
        for name in NAMES
    }


def test_a_setting_is_read_from_its_variable() -> None:
    given = {
        "LEVELOG_NATS_URL": "nats://one:4222",
        "LEVELOG_DATABASE_URL": "postgresql://two/three",
        "LEVELOG_DATA_DIR": "/four",
        "LEVELOG_REDACTION_KEY_FILE": "/five",
        "LEVELOG_LOG_FORMAT": "json",
        "LEVELOG_LOG_LEVEL": "error",
        "LEVELOG_DEBUG": "1",
        "KUBECONFIG": "/six:/seven",
    }
    assert parsed(env=given) == Settings(
        nats_url="nats://one:4222",
        database_url="postgresql://two/three",
        data_dir=Path("/four"),
        redaction_key_file=Path("/five"),
        log_format=LogFormat.JSON,
        log_level=LogLevel.ERROR,
        debug=True,
        kubeconfig="/six:/seven",
    )


def test_a_flag_wins_over_its_variable() -> None:
    assert parsed("--nats-url", "nats://flag", env={"LEVELOG_NATS_URL": "nats://variable"}).nats_url == "nats://flag"


def test_a_command_has_only_the_options_it_takes_and_its_own_parameters() -> None:
    found: list[tuple[Settings, str, int]] = []

    @taking("application")
    def command(settings: Settings, what: str, times: Annotated[int, typer.Option()] = 1) -> None:
        """Do something."""
        found.append((settings, what, times))

    app = typer.Typer()
    app.command()(command)
    assert CliRunner().invoke(app, ["it", "--times", "3", "--application", "shop"]).exit_code == 0
    assert found == [(Settings(application="shop"), "it", 3)]
    assert CliRunner().invoke(app, ["it", "--nats-url", "nats://x"]).exit_code == 2
    assert "Do something." in CliRunner().invoke(app, ["--help"]).output


def test_a_required_setting_that_is_missing_is_named_by_flag_and_variable() -> None:
    with pytest.raises(ConfigurationError, match=r"^processors share a log: give --nats-url or set LEVELOG_NATS_URL$"):
        Settings().required("nats_url", "processors share a log")
    assert Settings(nats_url="nats://x").required("nats_url", "processors share a log") == "nats://x"


OF_KOPF_RUN = """
-A --all-namespaces --standalone --dev -L --liveness -P --peering -p --priority -q --quiet -v --verbose -d
-n --log-prefix --log-refkey
"""


@pytest.mark.parametrize("option", OF_KOPF_RUN.split())
def test_options_of_kopf_run_that_levelog_run_has_not_are_refused(option: str) -> None:
    refused = invoke("run", "shops.py", option)
    assert refused.status == 2
    assert f"No such option: {option} (of kopf run; here " in refused.output


def test_a_variable_that_is_almost_that_of_a_setting_is_told() -> None:
    by_kubernetes = [
        "LEVELOG_NATS_PORT",
        "LEVELOG_NATS_SERVICE_HOST",
        "LEVELOG_NATS_PORT_4222_TCP",
        "LEVELOG_DATABASE_PORT",
    ]
    assert misspelt([*map(variable, NAMES), *by_kubernetes, "PATH", "DATABASE_URL"]) == []
    assert misspelt(["LEVELOG_NATS_URI", "LEVELOG_DATABSE_URL"]) == [
        "LEVELOG_DATABSE_URL is no setting; did you mean LEVELOG_DATABASE_URL?",
        "LEVELOG_NATS_URI is no setting; did you mean LEVELOG_NATS_URL?",
    ]


@pytest.mark.parametrize(
    "given", [{"max_backoff": nan}, {"max_backoff": inf}, {"threads": 0}, {"requests": -1}, {"log_replicas": 6}]
)
def test_a_number_out_of_bounds_is_refused_wherever_it_comes_from(given: dict[str, Any]) -> None:
    Settings().check()
    with pytest.raises(ConfigurationError, match="has to be at least"):
        Settings(**given).check()
