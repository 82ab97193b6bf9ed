"""What was seen of an attempt → how it ended and why; pure, so that every case can stand in a table."""

import math
from collections.abc import Mapping
from dataclasses import replace

from app.domain.lifecycle.outcomes import Outcome, OutcomeKind
from trainyard.protocol.messages import Failure, RankExit
from workers.rank.agent import EXIT_STOPPED, TEARDOWN_SECONDS
from workers.supervisor.ranks.observations import TIME_LIMIT, Sightings

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
        "HOST_OUT_OF_MEMORY",
        "NON_FINITE_LOSS",
        "DIVERGED",
        "EXPORT_FAILED",
        "STORAGE_ERROR",
        "NETWORK_ERROR",
        "DISK_FULL",
    }
)
# What ranks end by whose GPU returns wrong numbers, or none.
OF_BROKEN_DEVICES = frozenset(
    {"SCRIPT_ERROR", "TRAINER_ERROR", "NON_FINITE_LOSS", "DIVERGED", "RANK_KILLED", "HANG", "NO_RESULT"}
)
KILLED_FROM_OUTSIDE = frozenset({"SIGKILL", "SIGTERM", "SIGINT", "SIGHUP"})
ENDED_BY_WISH: Mapping[str, OutcomeKind] = {
    "pause": "paused",
    "cancel": "cancelled",
    "requeue": "requeued",
    "preempt": "preempted",
}
STOPPED_LATE = "its ranks stopped for a pause that had been given up; it goes on from its newest checkpoint"
KILLED_FOR_MEMORY = (
    "was killed by the kernel because the machine, or the job's share of it, ran out of memory; use a smaller batch, "
    "fewer workers or shorter sequences, or a node with more memory"
)
KILLED_CHILD = "killed by signal"  # as PyTorch says it


def judge(seen: Sightings) -> Outcome:
    """A finished training stays finished; else what we asked for explains the end; else it is a fault.

    A fault that a GPU explains which broke meanwhile is that GPU's.
    """
    outcome = _judge(seen)
    if not seen.broken_devices or outcome.cause not in OF_BROKEN_DEVICES:
        return outcome
    return replace(outcome, cause="DEVICE_FAULT", message=f"{seen.broken_devices}; {outcome.message}")


def _judge(seen: Sightings) -> Outcome:
    if seen.failure is not None and not _hangs_in_its_exit(seen):
        return _fault(seen.failure.error_type, seen.failure.message, seen.failure.stack)
    if _finished(seen):
        return Outcome(kind="completed", exit_code=0)
    if seen.stopping == TIME_LIMIT:
        limit = seen.time_limit_seconds
        return _fault("MAX_RUNTIME_EXCEEDED", f"the job ran longer than its max_runtime_seconds of {limit}")
    if seen.stopping is not None and (seen.forced or not _failed_by_itself(seen)):
        return Outcome(kind=ENDED_BY_WISH[seen.stopping], message=seen.unsaved, exit_code=seen.exit_code)
    if seen.stopping == "cancel":
        return Outcome(kind="cancelled", exit_code=seen.exit_code)
    if seen.gave_up and seen.exit_code == 0 and seen.result is not None:
        return Outcome(kind="requeued", message=STOPPED_LATE, exit_code=0)
    return _explain(seen)


def judge_part(seen: Sightings) -> Outcome:
    """The same of ranks on another node than the first one's, of whom nobody hears what they have made."""
    if seen.failure is not None or seen.exit_code != 0 or seen.out_of_memory_kills:
        return judge(seen)
    return Outcome(kind=ENDED_BY_WISH.get(seen.stopping or "", "completed"), exit_code=0)


def is_consequence(seen: Sightings, outcome: Outcome) -> bool:
    """Whether ranks of a gang only ended because others did. Who was killed from outside did not, and knew no more."""
    if outcome.cause != "RANK_KILLED":
        return False
    first = next((gone for gone in seen.exits if gone.exit_code != 0), None)
    was_killed = first is None or first.signal in KILLED_FROM_OUTSIDE or first.exit_code == EXIT_STOPPED
    return seen.terminated or not was_killed


def _hangs_in_its_exit(seen: Sightings) -> bool:
    """What the ranks were to do is done, all but ending."""
    return seen.failure is not None and seen.failure.error_type == "HANG" and seen.result is not None


def _finished(seen: Sightings) -> bool:
    if _hangs_in_its_exit(seen):
        return seen.result is not None and seen.result.stopped is None
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


def _explain(seen: Sightings) -> Outcome:
    first = next((e for e in seen.exits if e.exit_code != 0), None)
    own_fault = "SCRIPT_ERROR" if seen.custom else "TRAINER_ERROR"
    # A rank that was ended because another one was gone, or lost its connection to that one, knows no cause.
    knowing = next((said for said in seen.said if said.error_type != "RANK_KILLED"), None)
    killed = _killed_for_memory(seen, first)
    # What the others say after the first one was killed follows from that.
    if killed is not None and (knowing is None or killed is first):
        return _of_rank(seen, killed, "HOST_OUT_OF_MEMORY", KILLED_FOR_MEMORY)
    if knowing is not None:
        return _as_said(seen, knowing, first, own_fault)
    ended = next((said for said in seen.said if first is not None and said.rank == first.rank), None)
    if ended is not None:
        return _as_said(seen, ended, first, "RANK_KILLED")
    if first is not None and first.signal in KILLED_FROM_OUTSIDE:
        return _of_rank(seen, first, "RANK_KILLED", f"was killed from outside ({first.signal})")
    if first is not None and first.signal is not None:
        return _of_rank(seen, first, own_fault, f"crashed ({first.signal})")
    if first is not None:
        return _of_rank(seen, first, own_fault, f"ended with exit code {first.exit_code}")
    if seen.exit_code == 0:
        return _no_result(seen)
    if seen.out_of_memory_kills:
        return _fault("HOST_OUT_OF_MEMORY", f"the ranks' parent {KILLED_FOR_MEMORY}", _tail(seen, 0))
    return _fault("RANK_KILLED", f"the ranks were gone without a word (exit code {seen.exit_code})", _tail(seen, 0))


def _killed_for_memory(seen: Sightings, first: RankExit | None) -> RankExit | None:
    """The first rank that the kernel killed, and not we: what outlives the first one that broke is killed by us."""
    if not seen.out_of_memory_kills or seen.terminated or first is None:
        return None
    ours_from = math.inf if first.at is None else first.at + TEARDOWN_SECONDS
    return next((e for e in seen.exits if e.signal == "SIGKILL" and (e.at is None or e.at < ours_from)), None)


def _as_said(seen: Sightings, said: Failure, first: RankExit | None, own_fault: str) -> Outcome:
    cause = said.error_type if said.error_type in RANKS_MAY_SAY else own_fault
    message = said.message or f"rank {said.rank} failed without saying why"
    if cause == "STORAGE_ERROR" and seen.no_room:
        cause, message = "DISK_FULL", f"{message} ({seen.no_room})"
    elif cause == own_fault and seen.out_of_memory_kills and KILLED_CHILD in message:
        # A data loader's worker, of which the rank that started it tells.
        cause = "HOST_OUT_OF_MEMORY"
    return Outcome(
        kind="failed",
        cause=cause,
        message=message,
        stack=said.stack,
        exit_code=first.exit_code if first is not None else seen.exit_code,
        related_task=f"rank-{said.rank}",
    )


def _no_result(seen: Sightings) -> Outcome:
    if seen.result is not None:
        return _fault("NO_RESULT", f"the trainer stopped for a {seen.result.stopped} that nobody had asked for")
    return _fault("NO_RESULT", "every rank exited with 0, but none reported a result", _tail(seen, 0))


def _of_rank(seen: Sightings, first: RankExit, cause: str, what: str) -> Outcome:
    return Outcome(
        kind="failed",
        cause=cause,
        message=f"rank {first.rank} {what}",
        stack=_tail(seen, first.rank),
        exit_code=first.exit_code,
        related_task=f"rank-{first.rank}",
    )


def _fault(cause: str, message: str, stack: str = "") -> Outcome:
    return Outcome(kind="failed", cause=cause, message=message, stack=stack)


def _tail(seen: Sightings, rank: int) -> str:
    return "\n".join(seen.last_lines.get(rank, ()))
