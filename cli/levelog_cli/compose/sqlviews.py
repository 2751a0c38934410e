"""The SQL views of an application, made by whoever may."""

import logging

from levelog_cli.compose.application import LoadedApplication
from levelog_processors.program import sql_views
from levelog_store.connect.database import Database
from levelog_store.look.sqlviews import replace_views

log = logging.getLogger(__name__)


async def make_views(database: Database, application: LoadedApplication) -> None:
    """Make the SQL views of the loaded operators; a user who may not make them says so and goes on without."""
    if not await replace_views(database, application.name, sql_views(application.program)):
        log.warning(
            "the SQL views of application %s are not those of this code, and this user may not make them: "
            "run `levelog migrate FILE` as the owner of the tables",
            application.name,
        )
