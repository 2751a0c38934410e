"""Alembic, at work on a connection that is given."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection


def apply(connection: Connection, revision: str, *, is_newer: bool) -> None:
    """Bring a database up, or down, to a revision, in the transaction of the connection."""
    config = Config()
    # alembic reads the folder through configparser, to which % means something
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.attributes["connection"] = connection
    if is_newer:
        command.upgrade(config, revision)
    else:
        command.downgrade(config, revision)
