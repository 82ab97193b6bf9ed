"""Reasons why jobs of a trace never started, by policy."""

from collections.abc import Mapping
from dataclasses import dataclass

from simulation.jobs import JobResult
from simulation.replay import Replay

# Maximum number of reasons per policy: those of the first jobs.
MOST = 5
_NO_REASON = "it waits for resources that never become free"


@dataclass(frozen=True, kw_only=True)
class Unstarted:
    """Jobs with the same reason; ``first`` is the one that arrived first."""

    why: str
    first: str
    jobs: int
    policies: tuple[str, ...]


def unstarted(replays: Mapping[str, Replay]) -> list[Unstarted]:
    """Reasons of the first jobs; policies with the same reason are grouped."""
    found: dict[tuple[str, str, int], list[str]] = {}
    for policy, done in replays.items():
        by_reason: dict[str, list[JobResult]] = {}
        for outcome in done.outcomes:
            if outcome.refused or outcome.never_started:
                by_reason.setdefault(outcome.refused or outcome.pending_reason or _NO_REASON, []).append(outcome)
        for why, outcomes in list(by_reason.items())[:MOST]:
            found.setdefault((why, outcomes[0].job.job_id, len(outcomes)), []).append(policy)
    return [
        Unstarted(why=why, first=first, jobs=jobs, policies=tuple(policies))
        for (why, first, jobs), policies in found.items()
    ]
