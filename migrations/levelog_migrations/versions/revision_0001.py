"""All tables, as this code has them.

Until something is released there is no older form to keep. The first release writes this revision out, and from then on
it stays as it is.
"""

from typing import Final

from alembic import op

from levelog_store.tables import metadata

revision: Final = "0001"
down_revision: Final = None


def upgrade() -> None:
    """Make them."""
    metadata.create_all(op.get_bind(), checkfirst=False)


def downgrade() -> None:
    """Drop them."""
    metadata.drop_all(op.get_bind())
