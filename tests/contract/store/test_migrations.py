import asyncio
from pathlib import Path

import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import text

import levelog_migrations
from levelog_base.errors import ConfigurationError, MigrationRequired
from levelog_migrations import check, current, downgrade, head, upgrade
from levelog_migrations.schema import known
from levelog_store.connect.database import Database
from levelog_store.tables import metadata

CATALOG = {
    "sqlite": "SELECT name, sql FROM sqlite_master WHERE name NOT LIKE 'alembic%' AND sql IS NOT NULL ORDER BY name",
    "postgresql": """
        SELECT 'index ' || indexname AS name, indexdef FROM pg_indexes WHERE schemaname = 'public'
        UNION ALL
        SELECT 'constraint ' || conname, pg_get_constraintdef(c.oid) FROM pg_constraint c
        JOIN pg_class t ON t.oid = c.conrelid JOIN pg_namespace n ON n.oid = t.relnamespace WHERE n.nspname = 'public'
        UNION ALL
        SELECT 'column ' || table_name || '.' || column_name, concat_ws(' ', data_type, collation_name, is_nullable,
            column_default, ordinal_position, col_description((table_schema || '.' || table_name)::regclass,
            ordinal_position)) FROM information_schema.columns WHERE table_schema = 'public'
        ORDER BY name""",
}


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of each kind."""
    if request.param == "postgresql":
        return str(request.getfixturevalue("empty_postgres_url"))
    return f"sqlite:///{tmp_path}/levelog.db"


async def catalog(url: str) -> dict[str, str]:
    """Everything that the database knows about its tables."""
    async with await Database.open(url) as database, database.reading() as connection:
        rows = await connection.execute(text(CATALOG[database.dialect.name]))
        found = {name: " ".join(str(words).split()).replace(" ,", ",").replace(" )", ")") for name, words in rows}
    return {name: words for name, words in found.items() if "alembic" not in name}


async def test_a_migration_tells_how_many_revisions_it_has_applied(database_url: str) -> None:
    told: list[tuple[int, int]] = []
    await upgrade(database_url, on_revision=lambda done, total: told.append((done, total)))
    assert told == [(done, len(known())) for done in range(len(known()) + 1)]
    await upgrade(database_url, on_revision=lambda done, total: told.append((done, total)))
    assert len(told) == len(known()) + 1, "there is nothing to apply"
    await check(database_url)


async def test_migrations_up_down_and_up_and_the_models_lead_to_the_same_catalog(database_url: str) -> None:
    await upgrade(database_url)
    migrated = await catalog(database_url)
    assert len(migrated) > 20
    for again in (True, False):
        await downgrade(database_url, "base")
        assert (await catalog(database_url), await current(database_url)) == ({}, None)
        if again:
            await upgrade(database_url)
            assert await current(database_url) == head()
        else:
            async with await Database.open(database_url) as database, database.transaction() as connection:
                await connection.run_sync(metadata.create_all)
        assert await catalog(database_url) == migrated


def test_the_names_of_the_files_tell_the_revisions_in_order() -> None:
    scripts = ScriptDirectory(str(Path(levelog_migrations.__file__).parent))
    revisions = [script.revision for script in reversed(list(scripts.walk_revisions()))]
    assert revisions[-1] == head() == scripts.get_current_head()
    assert revisions == known()


async def test_a_database_without_tables_has_to_be_migrated(database_url: str) -> None:
    async with await Database.open(database_url):
        pass
    with pytest.raises(MigrationRequired, match=r"has no tables of levelog yet, .* run `levelog migrate`"):
        await check(database_url)


async def test_a_database_of_newer_code_is_refused_and_left_alone(database_url: str) -> None:
    await upgrade(database_url)
    async with await Database.open(database_url) as database, database.transaction() as connection:
        await connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    before = await catalog(database_url)
    for step in (check, upgrade):
        with pytest.raises(MigrationRequired, match=r"is at revision 9999, .*newer code"):
            await step(database_url)
    assert await catalog(database_url) == before


async def test_looking_makes_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="there is no database file"):
        await check(f"sqlite:///{tmp_path}/absent.db")
    with pytest.raises(ConfigurationError, match="there is no database file"):
        await current(f"sqlite:///{tmp_path}/absent.db")


async def test_many_processes_may_upgrade_at_once(empty_postgres_url: str) -> None:
    await asyncio.gather(*(upgrade(empty_postgres_url) for _ in range(5)))
    await check(empty_postgres_url)


async def test_a_failed_upgrade_leaves_nothing_half_done(database_url: str) -> None:
    async with await Database.open(database_url) as database, database.transaction() as connection:
        await connection.execute(text("CREATE TABLE decisions (in_the_way integer)"))
    with pytest.raises(Exception, match="decisions"):
        await upgrade(database_url)
    assert [name for name in await catalog(database_url) if "decisions" not in name] == []
    assert await current(database_url) is None


async def test_text_has_byte_order_where_the_server_sorts_otherwise(empty_postgres_url: str) -> None:
    await upgrade(empty_postgres_url)
    async with await Database.open(empty_postgres_url) as database, database.reading() as connection:
        others = await connection.execute(
            text("""
                SELECT table_name, column_name FROM information_schema.columns
                WHERE table_schema = 'public' AND data_type = 'text' AND collation_name IS DISTINCT FROM 'C'""")
        )
        assert others.all() == []
