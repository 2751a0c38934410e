"""Log lines: what a call gives as extra is part of the line, in both formats."""

import json
import logging
import subprocess
import sys

import pytest

from levelog_cli.logs import set_up_logs
from levelog_cli.settings import LogFormat, LogLevel


def test_text_is_one_aligned_line_with_its_fields(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logs(LogFormat.TEXT, LogLevel.INFO)
    fields = {"object": "pods/default/a", "sequence": 7, "reason": "two words", "intents": ["a", "b"], "none": []}
    logging.getLogger("levelog_ingest.watcher").info("listed %d objects", 3, extra=fields)
    logging.getLogger("levelog_ingest.watcher").debug("not shown")
    line = capsys.readouterr().err
    assert line[12:] == (
        " info     ingest     listed 3 objects                          "
        "object=pods/default/a  sequence=7  reason='two words'  intents='a, b'\n"
    )


def test_text_does_not_repeat_what_the_message_says(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logs(LogFormat.TEXT, LogLevel.INFO)
    fields = {"object": "pods/default/a", "view": "webs/pods", "round": 1}
    logging.getLogger("levelog_processors").info("webs/pods of pods/default/a: in_sync", extra=fields)
    assert capsys.readouterr().err.endswith("webs/pods of pods/default/a: in_sync      round=1\n")


def test_a_function_of_an_operator_speaks_in_the_name_of_that(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logs(LogFormat.TEXT, LogLevel.INFO)
    logging.getLogger("levelog.operator.webs.greet").info("hello")
    logging.getLogger("levelog.calls").info("away")
    first, second = capsys.readouterr().err.splitlines()
    assert first[12:] == " info     webs       hello"
    assert second[12:] == " info     levelog    away"


def test_json_is_one_object_a_line_with_its_fields(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logs(LogFormat.JSON, LogLevel.INFO)
    logging.getLogger("levelog_actuator.ledger").warning("two\nlines", extra={"view": "webs/pods", "path": pytest})
    (line,) = capsys.readouterr().err.splitlines()
    told = json.loads(line)
    assert told.pop("time").endswith("+00:00")
    assert told == {
        "level": "warning",
        "logger": "levelog_actuator.ledger",
        "message": "two\nlines",
        "view": "webs/pods",
        "path": str(pytest),
    }


def test_json_has_its_own_fields_whatever_a_function_calls_its(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logs(LogFormat.JSON, LogLevel.INFO)
    extra = {"level": "gold", "logger": "mine", "time": "noon", "room": 7}
    logging.getLogger("levelog.operator.webs.greet").info("hello", extra=extra)
    told = json.loads(capsys.readouterr().err)
    assert (told["level"], told["logger"], told["room"]) == ("info", "levelog.operator.webs.greet", 7)
    assert told["time"].endswith("+00:00")


@pytest.mark.parametrize("log_format", list(LogFormat))
def test_a_traceback_comes_with_its_line(log_format: LogFormat, capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logs(log_format, LogLevel.ERROR)
    try:
        int("wrong")
    except ValueError:
        logging.getLogger("levelog_x").exception("failed")
    said = capsys.readouterr().err
    text = said if log_format is LogFormat.TEXT else json.loads(said)["exception"]
    assert "Traceback (most recent call last):" in text
    assert "ValueError: invalid literal" in text


def test_libraries_are_heard_at_the_level_debug_only(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logs(LogFormat.TEXT, LogLevel.INFO)
    logging.getLogger("nats.aio.client").info("a library's own")
    logging.getLogger("of_the_operator").info("a handler's own")
    assert "a handler's own" in (said := capsys.readouterr().err)
    assert "a library's own" not in said
    set_up_logs(LogFormat.TEXT, LogLevel.DEBUG)
    logging.getLogger("nats.aio.client").debug("a library's own")
    assert "a library's own" in capsys.readouterr().err


def test_libraries_do_not_warn_where_errors_alone_are_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logs(LogFormat.TEXT, LogLevel.ERROR)
    for name in ("nats.aio.client", "sqlalchemy.pool"):
        logging.getLogger(name).warning("a warning")
        logging.getLogger(name).error("an error")
    assert [line.partition("an error")[1] for line in capsys.readouterr().err.splitlines()] == ["an error"] * 2


def test_the_command_line_is_there_before_its_rooms() -> None:
    heavy = ("sqlalchemy", "nats", "kubernetes_asyncio", "aiohttp", "rich", "alembic", "asyncio")
    script = f"import sys, levelog_cli.main\nprint([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['asyncio']"
