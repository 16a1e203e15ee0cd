"""The first schema: rollouts, journal, commands, meta, reports, and the triggers that keep the journal append-only."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

AT = sa.String(27)

SQLITE = (
    """CREATE TRIGGER journal_no_update BEFORE UPDATE ON journal
       BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END""",
    """CREATE TRIGGER journal_no_delete BEFORE DELETE ON journal
       BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END""",
    # INSERT OR REPLACE deletes without asking the delete trigger
    """CREATE TRIGGER journal_no_replace BEFORE INSERT ON journal
       WHEN EXISTS (SELECT 1 FROM journal WHERE rollout_id = NEW.rollout_id AND seq = NEW.seq)
       BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END""",
)
POSTGRESQL = (
    """CREATE FUNCTION journal_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
       BEGIN RAISE EXCEPTION 'the journal is append-only'; END $$""",
    """CREATE TRIGGER journal_no_change BEFORE UPDATE OR DELETE ON journal
       FOR EACH ROW EXECUTE FUNCTION journal_append_only()""",
    """CREATE TRIGGER journal_no_truncate BEFORE TRUNCATE ON journal
       FOR EACH STATEMENT EXECUTE FUNCTION journal_append_only()""",
)


def upgrade() -> None:
    _rollouts()
    _journal()
    _commands()
    op.create_table("meta", sa.Column("key", sa.String(), primary_key=True), sa.Column("value", sa.String(), nullable=False))
    op.create_table(
        "reports",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("spec_digest", sa.String(), nullable=False),
        sa.Column("report", sa.Text(), nullable=False),
        sa.Column("created", AT, nullable=False),
    )
    op.create_index("ix_reports_spec_digest", "reports", ["spec_digest"])
    for statement in SQLITE if op.get_bind().dialect.name == "sqlite" else POSTGRESQL:
        op.execute(statement)


def _rollouts() -> None:
    op.create_table(
        "rollouts",
        sa.Column("id", sa.String(), primary_key=True),
        *(sa.Column(name, sa.String(), nullable=False) for name in ("name", "server", "route", "plan_digest")),
        sa.Column("plan", sa.Text(), nullable=False),
        sa.Column("plan_text", sa.Text(), nullable=False),
        sa.Column("phase", sa.String(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("active", sa.Boolean(), nullable=False),
        sa.Column("owner", sa.String(), nullable=True),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("lease_until", AT, nullable=True),
        sa.Column("next_wake", AT, nullable=True),
        sa.Column("created", AT, nullable=False),
        sa.Column("ended", AT, nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("head_seq", sa.Integer(), nullable=False),
        sa.Column("head_hash", sa.String(), nullable=False),
    )
    active = sa.text("active")
    op.create_index("one_active_per_route", "rollouts", ["server", "route"], unique=True, sqlite_where=active, postgresql_where=active)
    op.create_index("ix_rollouts_route", "rollouts", ["route"])


def _journal() -> None:
    op.create_table(
        "journal",
        sa.Column("rollout_id", sa.String(), sa.ForeignKey("rollouts.id", name="fk_journal_rollout_id"), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("at", AT, nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("data", sa.Text(), nullable=False),
        sa.Column("prev_hash", sa.String(), nullable=False),
        sa.Column("hash", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("rollout_id", "seq", name="pk_journal"),
    )


def _commands() -> None:
    op.create_table(
        "commands",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("rollout_id", sa.String(), sa.ForeignKey("rollouts.id", name="fk_commands_rollout_id"), nullable=False),
        sa.Column("verb", sa.String(), nullable=False),
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("args", sa.Text(), nullable=False),
        sa.Column("at", AT, nullable=False),
        sa.Column("consumed_at", AT, nullable=True),
    )
    op.create_index("ix_commands_rollout_id", "commands", ["rollout_id"])
