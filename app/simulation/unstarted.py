"""Why jobs of a trace never started, under which policies."""

from collections.abc import Mapping
from dataclasses import dataclass

from app.simulation.jobs import Outcome
from app.simulation.replay import Replay

# So many reasons are told of each policy: those of the jobs that came first.
MOST = 5
_NOT_TOLD = "it waits for what never becomes free"


@dataclass(frozen=True, kw_only=True)
class Unstarted:
    """Jobs that had the same reason; ``first`` is the one that came first."""

    why: str
    first: str
    jobs: int
    policies: tuple[str, ...]


def unstarted(replays: Mapping[str, Replay]) -> list[Unstarted]:
    """The reasons of the jobs that came first; policies under which it was the same stand together."""
    found: dict[tuple[str, str, int], list[str]] = {}
    for policy, done in replays.items():
        by_reason: dict[str, list[Outcome]] = {}
        for outcome in done.outcomes:
            if outcome.refused or outcome.never_started:
                by_reason.setdefault(outcome.refused or outcome.pending_reason or _NOT_TOLD, []).append(outcome)
        for why, outcomes in list(by_reason.items())[:MOST]:
            found.setdefault((why, outcomes[0].job.job_id, len(outcomes)), []).append(policy)
    return [
        Unstarted(why=why, first=first, jobs=jobs, policies=tuple(policies))
        for (why, first, jobs), policies in found.items()
    ]
