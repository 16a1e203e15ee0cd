"""Run by alembic, inside the transaction of the connection that `migrate` hands over. Opens nothing itself."""

from __future__ import annotations

from alembic import context

context.configure(connection=context.config.attributes["connection"], version_table=context.config.attributes["version_table"])
context.run_migrations()
