"""What was seen of an attempt → how it ended and why; pure, so that every case can stand in a table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from app.domain.outcomes import OutcomeKind
from workers.failures import AttemptFailed
from workers.messages import Failure, RankExit, Result

# What a rank may say about itself. The rest is for the platform to find out.
RANKS_MAY_SAY = frozenset(
    {
        "INVALID_CONFIG",
        "MODEL_NOT_FOUND",
        "DATA_NOT_FOUND",
        "DATA_INVALID",
        "SCRIPT_ERROR",
        "TRAINER_ERROR",
        "OUT_OF_MEMORY",
        "NON_FINITE_LOSS",
        "EXPORT_FAILED",
        "STORAGE_ERROR",
    }
)
KILLED_FROM_OUTSIDE = frozenset({"SIGKILL", "SIGTERM", "SIGINT", "SIGHUP"})
ENDED_BY_WISH: Mapping[str, OutcomeKind] = {"pause": "paused", "cancel": "cancelled", "requeue": "requeued"}
TIME_LIMIT = "time limit"


@dataclass(kw_only=True)
class Sightings:
    """Everything about an attempt that decides its outcome."""

    custom: bool
    stopping: str | None = None  # pause | cancel | requeue | TIME_LIMIT: what we asked the ranks for
    failure: AttemptFailed | None = None  # of ours: preparing, launching
    said: list[Failure] = field(default_factory=list)
    exits: list[RankExit] = field(default_factory=list)
    result: Result | None = None
    terminated: bool = False  # we sent the ranks SIGTERM: how they exited says nothing
    spoke: bool = False  # on the channel, at all
    exit_code: int | None = None  # of the agent: 0 when every rank exited with 0
    out_of_memory_kills: int = 0  # by the kernel, while the ranks ran
    last_lines: Mapping[int, Sequence[str]] = field(default_factory=dict)
    time_limit_seconds: int | None = None


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """How the attempt ended."""

    kind: OutcomeKind
    cause: str = ""
    message: str = ""
    stack: str = ""
    exit_code: int | None = None
    related_task: str = ""


def judge(seen: Sightings) -> Verdict:
    """A finished training stays finished; else what we asked for explains the end; else it is a fault."""
    if seen.failure is not None:
        return _fault(seen.failure.error_type, seen.failure.message, seen.failure.stack)
    if _finished(seen):
        return Verdict(kind="completed", exit_code=0)
    if seen.stopping == TIME_LIMIT:
        limit = seen.time_limit_seconds
        return _fault("MAX_RUNTIME_EXCEEDED", f"the job ran longer than its max_runtime_seconds of {limit}")
    if seen.stopping is not None and not _failed_by_itself(seen):
        return Verdict(kind=ENDED_BY_WISH[seen.stopping], exit_code=seen.exit_code)
    if seen.stopping == "cancel":
        return Verdict(kind="cancelled", exit_code=seen.exit_code)
    return _explain(seen)


def _finished(seen: Sightings) -> bool:
    if seen.exit_code != 0:
        return False
    if seen.result is not None:
        return seen.result.stopped is None
    # A script that knows nothing of us says all it has to say by its exit code.
    return seen.custom and not seen.spoke and seen.stopping is None


def _failed_by_itself(seen: Sightings) -> bool:
    """Whether a rank broke although it was only asked to save and stop."""
    if seen.terminated:
        return False
    return bool(seen.said) or any(e.exit_code != 0 and e.signal not in KILLED_FROM_OUTSIDE for e in seen.exits)


def _explain(seen: Sightings) -> Verdict:
    first = next((e for e in seen.exits if e.exit_code != 0), None)
    own_fault = "SCRIPT_ERROR" if seen.custom else "TRAINER_ERROR"
    if first is not None and first.signal == "SIGKILL" and seen.out_of_memory_kills:
        return _of_rank(seen, first, "OUT_OF_MEMORY", "was killed by the kernel: the machine ran out of memory")
    if seen.said:
        said = seen.said[0]
        error_type = said.error_type if said.error_type in RANKS_MAY_SAY else own_fault
        return Verdict(
            kind="failed",
            cause=error_type,
            message=said.message or f"rank {said.rank} failed without saying why",
            stack=said.stack,
            exit_code=first.exit_code if first is not None else seen.exit_code,
            related_task=f"rank-{said.rank}",
        )
    if first is not None and first.signal in KILLED_FROM_OUTSIDE:
        return _of_rank(seen, first, "RANK_KILLED", f"was killed from outside ({first.signal})")
    if first is not None and first.signal is not None:
        return _of_rank(seen, first, own_fault, f"crashed ({first.signal})")
    if first is not None:
        return _of_rank(seen, first, own_fault, f"ended with exit code {first.exit_code}")
    if seen.exit_code == 0:
        return _no_result(seen)
    return _fault("RANK_KILLED", f"the ranks were gone without a word (exit code {seen.exit_code})", _tail(seen, 0))


def _no_result(seen: Sightings) -> Verdict:
    if seen.result is not None:
        return _fault("NO_RESULT", f"the trainer stopped for a {seen.result.stopped} that nobody had asked for")
    return _fault("NO_RESULT", "every rank exited with 0, but none reported a result", _tail(seen, 0))


def _of_rank(seen: Sightings, first: RankExit, cause: str, what: str) -> Verdict:
    return Verdict(
        kind="failed",
        cause=cause,
        message=f"rank {first.rank} {what}",
        stack=_tail(seen, first.rank),
        exit_code=first.exit_code,
        related_task=f"rank-{first.rank}",
    )


def _fault(cause: str, message: str, stack: str = "") -> Verdict:
    return Verdict(kind="failed", cause=cause, message=message, stack=stack)


def _tail(seen: Sightings, rank: int) -> str:
    return "\n".join(seen.last_lines.get(rank, ()))
