"""Rows of `rollouts`: put in, found, listed. Claims and fences are in `lease`, the journal in `journal`."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Sequence

from pydantic import ValidationError
from sqlmodel import Session, col, func, select

from rollout.domain.state import RolloutState
from rollout.errors import NotFound, RouteTaken, StoreDamaged
from rollout.store.chain import Json, canonical, genesis, instant, plain
from rollout.store.records import StoredRollout
from rollout.store.tables import BACK, RolloutTable, unreadable


def insert(session: Session, state: RolloutState, plan: dict[str, Json], plan_text: str) -> RolloutTable:
    """A new rollout with an empty journal. IntegrityError when its route is held or its id is known."""
    row = RolloutTable(
        id=state.id,
        name=state.name,
        server=state.server,
        route=state.route,
        plan_digest=state.plan_digest,
        plan=plan,
        plan_text=plain(plan_text),
        phase=state.phase,
        state={},
        active=True,
        created=state.created,
        head_seq=0,
        head_hash=genesis(state.id),
    )
    update(row, state)
    session.add(row)
    session.flush()  # the journal refers to it
    return row


def update(row: RolloutTable, state: RolloutState) -> None:
    """What is true now. A terminal rollout frees its route."""
    row.state = state.model_dump(mode="json")
    row.phase = state.phase.value
    row.active = not state.terminal
    row.ended = state.ended
    row.exit_code = state.exit_code


def seal(row: RolloutTable) -> None:
    """Last of all in a transaction that wrote the row: what is read later is what was written now."""
    row.seal = sealed(row)


def sealed(row: RolloutTable) -> str:
    """SHA-256 (hex) over everything that a rollout is decided from. Owner, fence and times to come are left out: the claim moves them."""
    said: list[Json] = [row.id, row.name, row.server, row.route, row.plan_digest, row.plan, row.plan_text, str(row.phase), row.state]
    said += [bool(row.active), row.exit_code, row.head_seq, row.head_hash]
    return hashlib.sha256(canonical(said).encode()).hexdigest()


def get(session: Session, rollout_id: str, *, lock: bool = False) -> RolloutTable:
    """By full id; `lock` until the transaction ends. NotFound otherwise."""
    row = session.get(RolloutTable, rollout_id, with_for_update=lock or None)
    if row is None:
        raise _not_found(session, rollout_id)
    return row


def find(session: Session, prefix: str) -> RolloutTable:
    """By id or the only beginning of one. NotFound lists what comes near."""
    exact = session.get(RolloutTable, prefix) if prefix else None
    if exact is not None:
        return exact
    start = func.substr(col(RolloutTable.id), 1, len(prefix))
    rows = session.exec(select(RolloutTable).where(start == prefix).order_by(col(RolloutTable.created).desc()).limit(6)).all()
    if len(rows) == 1 and prefix:
        return rows[0]
    raise _ambiguous(prefix, rows) if prefix and rows else _not_found(session, prefix)


def listed(session: Session, *, active_only: bool, route: str | None, limit: int) -> Sequence[RolloutTable]:
    """Newest first."""
    query = select(RolloutTable).order_by(col(RolloutTable.created).desc(), col(RolloutTable.id)).limit(limit)
    if active_only:
        query = query.where(col(RolloutTable.active))
    if route is not None:
        query = query.where(RolloutTable.route == route)
    return session.exec(query).all()


def active_ids(session: Session) -> Sequence[str]:
    """Newest first; no row is read for it."""
    return session.exec(select(RolloutTable.id).where(col(RolloutTable.active)).order_by(col(RolloutTable.created).desc())).all()


def active_on(session: Session, server: str, route: str) -> RolloutTable | None:
    """The one rollout that holds the route."""
    held = select(RolloutTable).where(RolloutTable.server == server, RolloutTable.route == route, col(RolloutTable.active))
    return session.exec(held).one_or_none()


def latest_on(session: Session, server: str, route: str) -> RolloutTable | None:
    """The one that was begun last on the route, under way or ended."""
    there = select(RolloutTable).where(RolloutTable.server == server, RolloutTable.route == route)
    return session.exec(there.order_by(col(RolloutTable.created).desc(), col(RolloutTable.id)).limit(1)).one_or_none()


def route_taken(row: RolloutTable) -> RouteTaken:
    """Names the holder."""
    return RouteTaken(
        f"Route {row.route} on {row.server} is held by rollout {row.id} ({row.name}).",
        why=f"It is {row.phase}, since {instant(row.created)}; a route has one rollout at a time.",
        hint=f"`rollout status {row.id}` shows it; wait for its end, or end it with `rollout abort {row.id} --reason WHY`.",
    )


def stored(row: RolloutTable) -> StoredRollout:
    """The row as a value. StoreDamaged when its state cannot be read, or something else than rollout changed the row."""
    if row.seal is not None and row.seal != sealed(row):
        why = "Its content does not fit its seal: it was changed after rollout wrote it."
        raise StoreDamaged(f"The row of rollout {row.id} was changed by something else.", why=why, hint=BACK)
    try:
        state = RolloutState.model_validate(row.state)
    except ValidationError as error:
        raise unreadable(f"the state of rollout {row.id}", row.state) from error
    return StoredRollout(
        state=state,
        plan=row.plan,
        plan_text=row.plan_text,
        owner=row.owner,
        fence=row.fence,
        lease_until=row.lease_until,
        next_wake=row.next_wake,
    )


def _not_found(session: Session, wanted: str) -> NotFound:
    known = session.exec(
        select(RolloutTable.id, RolloutTable.name).order_by(col(RolloutTable.active).desc(), col(RolloutTable.created).desc()).limit(200)
    ).all()
    by_word = {word: f"{rollout_id} ({name})" for rollout_id, name in known for word in (rollout_id, name)}
    near = dict.fromkeys(by_word[word] for word in difflib.get_close_matches(wanted, by_word, n=3, cutoff=0.5))
    why = f"Near it: {', '.join(near)}." if near else f"This store knows {len(known) or 'no'} rollouts, none of a similar name."
    return NotFound(f"There is no rollout {wanted!r} in this store.", why=why)


def _ambiguous(prefix: str, rows: Sequence[RolloutTable]) -> NotFound:
    names = ", ".join(f"{row.id} ({row.name})" for row in rows[:5]) + (", …" if len(rows) > 5 else "")
    return NotFound(f"More than one rollout begins with {prefix!r}.", why=f"They are {names}.", hint="Give more of the id.")
