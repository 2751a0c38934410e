"""`levelog migrate`: bring the database to the revision of this code."""

from levelog_cli.running import execute
from levelog_cli.settings import Settings, taking


@taking("database_url", "data_dir")
def migrate(settings: Settings) -> None:
    """Bring the database to the revision of this code; nothing happens if it is there already."""

    async def work() -> None:
        from levelog_cli.compose.migrate import migrate_database

        await migrate_database(settings)

    execute(settings, work)
