"""Runs Alembic on a given connection."""

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection


def apply(connection: Connection, revision: str, *, is_newer: bool, tell: Callable[[int], None] | None = None) -> None:
    """Bring a database up, or down, to a revision, in the transaction of the connection.

    `tell` is told how many revisions are applied: before the first, and after each.
    """
    done = count()

    def step(**_: Any) -> None:
        if tell is not None:
            tell(next(done))

    step()
    config = Config()
    # alembic reads the folder through configparser, to which % means something
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.attributes["connection"] = connection
    config.attributes["step"] = step
    if is_newer:
        command.upgrade(config, revision)
    else:
        command.downgrade(config, revision)
