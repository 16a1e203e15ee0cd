"""Rows of `reports`: what staging found out about a spec, so that the same spec need not be load-tested again soon."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlmodel import Session, col, select

from rollout.store.chain import Json
from rollout.store.records import StoredReport
from rollout.store.tables import ReportTable


def save(session: Session, spec_digest: str, report: dict[str, Json], now: datetime) -> None:
    """Keeps it beside the earlier ones."""
    session.add(ReportTable(spec_digest=spec_digest, report=report, created=now))


def find(session: Session, spec_digest: str, max_age: float, now: datetime) -> StoredReport | None:
    """The newest one, when it is at most `max_age` seconds old."""
    oldest = now - timedelta(seconds=max_age)
    query = select(ReportTable).where(ReportTable.spec_digest == spec_digest, col(ReportTable.created) >= oldest)
    row = session.exec(query.order_by(col(ReportTable.created).desc(), col(ReportTable.id).desc()).limit(1)).first()
    return None if row is None else StoredReport(spec_digest=row.spec_digest, report=row.report, created=row.created)
