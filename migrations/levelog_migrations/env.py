"""Alembic's environment: runs revisions on the connection that `schema` passes in, in its transaction."""

from alembic import context

from levelog_store.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    on_version_apply=context.config.attributes["step"],
)
with context.begin_transaction():
    context.run_migrations()
