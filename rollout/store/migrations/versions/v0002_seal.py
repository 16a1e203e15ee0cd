"""The second schema: a rollout's row carries a seal, so that a row which something else changed is found before it is believed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Rows of the release before have none until they are written again."""
    op.add_column("rollouts", sa.Column("seal", sa.String(), nullable=True))
