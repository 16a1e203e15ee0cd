"""Windows of every kind the judge may be given, drawn at random: the strategies of the property tests."""

from hypothesis import strategies as st

from rollout.analysis import ArmWindow, Histogram, ProbePair, QualityPair, Window
from rollout.analysis.samples import Status

EDGES = (0.1, 0.25, 0.5, 1.0, 2.5)
REFERENCE = Histogram(EDGES, (2000, 4000, 2500, 1000, 400, 100))
BUCKET_SETS = (EDGES, EDGES, (0.1, 0.5, 2.5), (0.25, 0.3, 1.0, 9.0), (7.0,), ())
STATUSES: tuple[Status, ...] = ("OK", "OK", "OK", "OK", "NO_TRAFFIC", "NO_METRIC", "METRIC_ERROR")


@st.composite
def histograms(draw: st.DrawFn) -> Histogram | None:
    """None where the metric was not exposed; the buckets differ from window to window and from side to side."""
    if draw(st.integers(0, 9)) == 0:
        return None
    edges = draw(st.sampled_from(BUCKET_SETS))
    return Histogram(edges, tuple(draw(st.lists(st.integers(0, 40), min_size=len(edges) + 1, max_size=len(edges) + 1))))


@st.composite
def arms(draw: st.DrawFn) -> ArmWindow:
    requests = draw(st.integers(0, 120))
    return ArmWindow(
        requests,
        draw(st.integers(0, min(requests, 5))),
        draw(histograms()),
        draw(histograms()),
        restarts=int(draw(st.integers(0, 19)) == 0),
        status=draw(st.sampled_from(STATUSES)),
        tpot=draw(histograms()),
        memory_used=draw(st.one_of(st.none(), st.integers(1 << 30, 40 << 30))),
    )


seconds = st.one_of(st.none(), st.floats(0.01, 30))
scores = st.one_of(st.none(), st.sampled_from([0.0, 0.5, 1.0]))
pairs = st.lists(st.builds(ProbePair, seconds, seconds, st.booleans(), st.booleans()), max_size=6).map(tuple)
qualities = st.lists(st.builds(QualityPair, scores, scores), max_size=6).map(tuple)


@st.composite
def rollouts(draw: st.DrawFn, least: int = 1, most: int = 8) -> list[Window]:
    """Windows with rising ids (gaps allowed) over rising rungs."""
    found: list[Window] = []
    index, rung = 0, 0
    for _ in range(draw(st.integers(least, most))):
        index += draw(st.integers(1, 3))
        rung += draw(st.sampled_from([0, 0, 1]))
        canary = draw(st.integers(0, 50))
        found.append(
            Window(
                index,
                rung,
                draw(st.sampled_from([0.0, 15.0, 30.0])),
                draw(arms()),
                draw(arms()),
                draw(st.one_of(st.just(()), pairs)),
                draw(st.sampled_from([None, 0.05, 0.8, 1.0, 1.0, 1.25, 4.0])),
                draw(st.sampled_from([None, 0.1, 0.5, 1.0])),
                draw(st.one_of(st.none(), st.just((canary, canary + 70)))),
                weight_changed=draw(st.integers(0, 9)) == 0,
                memory_available=draw(st.one_of(st.none(), st.integers(0, 1 << 36))),
                quality=draw(st.one_of(st.just(()), qualities)),
            )
        )
    return found
