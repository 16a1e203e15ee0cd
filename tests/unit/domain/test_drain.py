"""When a side counts as empty."""

from datetime import UTC, datetime, timedelta

from rollout.domain.drain import Mark, look
from rollout.domain.world import DeploymentView, EngineSample, InstanceSample, InstanceView

NOW = datetime(2026, 11, 1, tzinfo=UTC)


def view(state: str = "running") -> DeploymentView:
    return DeploymentView(1, "chat-a", 1, 1, state, {}, (InstanceView(1, "chat-a-0", state, "spark-01"),))


def sample(running: float | None, requests: float | None = 10, at: datetime = NOW) -> EngineSample:
    return EngineSample(at, "OK", {"a": InstanceSample(running, 0.0, requests, 0, 80, None, None)})


def test_no_running_instance_is_empty() -> None:
    """Nothing can be in flight where nothing runs."""
    assert look(None, None, None, 10).empty
    assert look(view("error"), None, None, 10).empty


def test_no_scrape_is_not_empty() -> None:
    """A dead metrics page is no evidence of anything."""
    for dead in (None, EngineSample(NOW, "METRIC_ERROR", {}, "timeout"), EngineSample(NOW, "NO_METRIC"), sample(None), sample(0, None)):
        answer = look(view(), dead, None, 10)
        assert not answer.empty
        assert not answer.known


def test_one_zero_proves_nothing() -> None:
    """In flight 0 counts only after the quiet period with flat counters."""
    first = look(view(), sample(0), None, 10)
    assert not first.empty
    early = look(view(), sample(0, at=NOW + timedelta(seconds=9)), first.mark, 10)
    assert not early.empty
    late = look(view(), sample(0, at=NOW + timedelta(seconds=11)), early.mark, 10)
    assert late.empty


def test_a_request_in_between_starts_the_quiet_period_anew() -> None:
    """A counter that moved means a request came and went between two looks."""
    first = look(view(), sample(0), None, 10)
    moved = look(view(), sample(0, 11, NOW + timedelta(seconds=9)), first.mark, 10)
    assert not moved.empty
    assert not look(view(), sample(0, 11, NOW + timedelta(seconds=11)), moved.mark, 10).empty


def test_time_with_requests_in_flight_is_never_quiet_time() -> None:
    """A long stream that was aborted leaves flat counters; the quiet period begins when the gauge falls to 0."""
    busy = look(view(), sample(1), None, 10)
    assert not busy.empty
    idle = look(view(), sample(0, at=NOW + timedelta(seconds=30)), busy.mark, 10)
    assert not idle.empty
    assert look(view(), sample(0, at=NOW + timedelta(seconds=41)), idle.mark, 10).empty


def test_a_stuck_gauge_is_named() -> None:
    """Busy over flat counters for ten quiet periods: said, never taken for empty."""
    busy = look(view(), sample(1), None, 10)
    answer = look(view(), sample(1, at=NOW + timedelta(seconds=101)), busy.mark, 10)
    assert not answer.empty
    assert "stale" in answer.why


def test_a_busy_side_writes_few_marks() -> None:
    """The mark is kept while it is fresh, so that a long drain does not fill the journal."""
    mark = Mark(NOW, 1, 1, busy=True)
    assert look(view(), sample(3, 50, NOW + timedelta(seconds=5)), mark, 10).mark is mark
