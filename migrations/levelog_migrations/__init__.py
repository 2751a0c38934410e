"""The schema, by revisions: `levelog migrate` applies them, every process checks that the database is at the last."""

from levelog_migrations.schema import check, current, downgrade, head, upgrade

__all__ = ["check", "current", "downgrade", "head", "upgrade"]
