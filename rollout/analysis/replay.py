"""Judging recorded windows again: the same `absorb` and `verdict` as live, window after window. Nothing here weighs anything itself."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rollout.analysis.assess import Verdict, verdict
from rollout.analysis.config import JudgeConfig
from rollout.analysis.judge import absorb, new_state
from rollout.analysis.recording import Attempt, Look


@dataclass(frozen=True)
class Judged:
    """One window and the verdict after it."""

    look: Look
    verdict: Verdict

    @property
    def requests(self) -> int:
        """Canary requests compared so far."""
        return int(self.verdict.details["live_requests"]["canary"])

    @property
    def against(self) -> float:
        """log10 of the evidence for a rollback."""
        return float(self.verdict.details["evidence_against"]["log10"])

    @property
    def supporting(self) -> float:
        """log10 of the evidence of the weakest claim that a promotion needs."""
        return min(map(float, self.verdict.details["evidence_for"]["log10_by_claim"].values()), default=0.0)

    @property
    def as_said(self) -> bool | None:
        """Whether the verdict is the one that was given live; None where that was not kept. The words may be another release's."""
        return None if self.look.said is None else self.look.said[0] == self.verdict.kind

    @property
    def worded_as_said(self) -> bool | None:
        """Whether it is that verdict to the letter, numbers included; None where that was not kept."""
        return None if self.look.said is None else self.look.said == (self.verdict.kind, self.verdict.sentence)


@dataclass(frozen=True)
class AsLive:
    """How far an attempt judged again is as it was judged live: of the `told` verdicts that were kept, how many are the `same`, and how
    many to the letter; `first_other`: the first look whose verdict is another one.
    """

    told: int
    same: int
    same_words: int
    first_other: Look | None


def as_live(again: Sequence[Judged]) -> AsLive:
    """Counts over all windows; an attempt whose verdicts were not kept has none."""
    told = [one for one in again if one.as_said is not None]
    other = next((one.look for one in told if not one.as_said), None)
    return AsLive(len(told), sum(bool(one.as_said) for one in told), sum(bool(one.worded_as_said) for one in told), other)


def replay(config: JudgeConfig, looks: Iterable[Look]) -> Iterator[Judged]:
    """The verdict after each window, from a judge that has seen nothing. Live, the state makes a trip through JSON between two windows;
    that loses no bit, so it is left out here.
    """
    state = new_state(config)
    for look in looks:
        state = absorb(config, state, look.window)
        yield Judged(look, verdict(config, state))


def judged(attempt: Attempt, config: JudgeConfig | None = None) -> tuple[Judged, ...]:
    """All of an attempt, under its own config or another one."""
    return tuple(replay(config or attempt.config, attempt.looks))
