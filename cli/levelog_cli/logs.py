"""Log lines on stderr: aligned text for people, or one JSON object a line for machines.

What a call gives as `extra` (object, sequence, view, …) is a field of the line.
"""

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import Any, Final, TextIO

import msgspec

from levelog.escapes import escaped
from levelog.handlers.callnames import in_words
from levelog_cli.settings import LogFormat, LogLevel

_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_LIBRARIES: Final = ("nats", "aiohttp", "asyncio", "alembic", "kubernetes_asyncio")
_FLOODING: Final = ("sqlalchemy",)  # each statement and each of its parameters, below a warning
_OPERATORS: Final = "levelog.operator."  # then OPERATOR.FUNCTION
_BELOW: Final = "  "
"""Begins each line of a traceback, so that no text in it passes for a log line."""
_encoder = msgspec.json.Encoder(enc_hook=str)


def set_up_logs(log_format: LogFormat, level: LogLevel) -> None:
    """Send the log of this process to stderr. What libraries say below a warning is seen at the level debug only."""
    handler = _Handler()
    handler.setFormatter(_JsonFormatter() if log_format is LogFormat.JSON else _TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    quieten(*_LIBRARIES, below=logging.NOTSET if level is LogLevel.DEBUG else logging.WARNING)
    quieten(*_FLOODING)
    logging.captureWarnings(capture=True)
    # what no line shows
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - as Python's logging guide says


def quieten(*loggers: str, below: int = logging.WARNING) -> None:
    """Leave out what loggers say below a level, or below the one that is asked for."""
    for name in loggers:
        logging.getLogger(name).setLevel(max(below, logging.getLogger().level))


class _Handler(logging.Handler):
    """Writes to what stderr is at that moment: while a progress bar is shown, that keeps the lines apart.

    If a function of the user has closed it, that is undone: Python's own handlers raise where they cannot complain.
    """

    @property
    def stream(self) -> TextIO:
        if sys.stderr is None or sys.stderr.closed:  # pyright: ignore[reportUnnecessaryComparison]
            sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115 - as long as the process
        return sys.stderr

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self.stream.write(f"{self.format(record)}\n")
            self.stream.flush()
        except Exception:  # noqa: BLE001 - the log must not stop what it tells about
            self.handleError(record)


class _TextFormatter(logging.Formatter):
    """`12:30:01.250 info     ingest      listed 3 objects   resource=… version=…`, without what the text says too."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a line, and the traceback below it if there is one."""
        at = datetime.fromtimestamp(record.created, UTC).astimezone().time().isoformat("milliseconds")
        message = record.getMessage()
        said = message.replace(":", " ").split()
        named = "  ".join(
            f"{name}={_shown(value)}"
            for name, value in _extras(record).items()
            if value not in ("", [], None) and str(value) not in said
        )
        line = f"{at} {record.levelname.lower():<8} {_room(record.name):<10} {message:<40}  {named}".rstrip()
        trace = [_BELOW + each for each in _trace(record).splitlines()] if record.exc_info else ()
        return "\n".join(map(escaped, (in_words(line), *trace)))


class _JsonFormatter(logging.Formatter):
    """One object a line: time (RFC 3339, UTC), level, logger, message, the extras, and exception with a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a line."""
        fields: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields = fields | _extras(record) | fields
        if record.exc_info:
            fields["exception"] = _trace(record)
        try:
            return escaped(_encoder.encode(fields).decode())
        except UnicodeEncodeError:  # half a character
            return json.dumps(fields, default=str)


def _extras(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}


def _room(logger: str) -> str:
    """The speaker: a room of levelog, a library, or an operator, by its name."""
    if logger.startswith(_OPERATORS):
        return logger.removeprefix(_OPERATORS).partition(".")[0]
    first = logger.partition(".")[0]
    return first.removeprefix("levelog_") if first.startswith("levelog_") else first


def _trace(record: logging.LogRecord) -> str:
    return "".join(traceback.format_exception(*record.exc_info)).rstrip() if record.exc_info else ""


def _shown(value: object) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return text if text and " " not in text else repr(text)
