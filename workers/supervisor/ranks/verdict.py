"""Derives the outcome of an attempt from the observations; pure, so that tests are a table of cases."""

import math
from collections.abc import Mapping
from dataclasses import replace

from app.domain.lifecycle.halts import halted_at, is_halt
from app.domain.lifecycle.outcomes import Outcome, OutcomeKind
from trainyard._hooks.halts import NEVER_HALTED
from trainyard.protocol.commands import DRAIN
from trainyard.protocol.messages import HALT, Failure, RankExit
from workers.rank.agent import EXIT_STOPPED, TEARDOWN_SECONDS
from workers.supervisor.ranks.observations import TIME_LIMIT, Observations
from workers.supervisor.ranks.tracebacks import last_raised, with_place

# Causes that a rank may report about itself; all others are determined by the platform.
CAUSES_FROM_RANKS = frozenset(
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
# Causes that a GPU which returns wrong numbers, or none, may be behind.
OF_BROKEN_DEVICES = frozenset(
    {"SCRIPT_ERROR", "TRAINER_ERROR", "NON_FINITE_LOSS", "DIVERGED", "RANK_KILLED", "HANG", "NO_RESULT"}
)
KILLED_FROM_OUTSIDE = frozenset({"SIGKILL", "SIGTERM", "SIGINT", "SIGHUP"})
ENDED_BY_REQUEST: Mapping[str, OutcomeKind] = {
    "pause": "paused",
    "cancel": "cancelled",
    "requeue": "requeued",
    "preempt": "preempted",
    DRAIN: "completed",
}
STOPPED_LATE = "its ranks stopped for a pause that had been given up; it resumes from its newest checkpoint"
KILLED_FOR_MEMORY = (
    "was killed by the kernel because the machine, or the job's share of it, ran out of memory; use a smaller batch, "
    "fewer workers or shorter sequences, or a node with more memory"
)
KILLED_AT_LIMIT = (
    "was killed by the kernel because the job reached its memory limit of {} MB (resource_config.limits.ram_mb, else "
    "the node's TRAINYARD_NODE_MAX_RAM_MB); use a smaller batch, fewer workers or shorter sequences, or set a higher "
    "limit"
)
NEVER_ANSWERED = "the engine ended before it answered a request"
ENDED_BY_ITSELF = "the engine ended although nothing had asked it to"
UNCAUGHT_EXCEPTION = 1  # Python's exit code
KILLED_CHILD = "killed by signal"  # PyTorch's wording


def judge(observed: Observations) -> Outcome:
    """A finished training stays finished, a halted one paused; else a requested stop explains the end; else it is a
    fault.

    A fault that a GPU failure during the attempt can explain is attributed to that GPU.
    """
    outcome = _judge(observed)
    if outcome.kind == "completed" and observed.serves:
        outcome = _judge_replica(observed, outcome)
    if not observed.broken_devices or outcome.cause not in OF_BROKEN_DEVICES:
        return outcome
    return replace(outcome, cause="DEVICE_FAULT", message=f"{observed.broken_devices}; {outcome.message}")


def _judge_replica(observed: Observations, completed: Outcome) -> Outcome:
    """Replicas serve until they are asked to end: only one that has drained is complete."""
    if observed.stopping == DRAIN:
        return completed if observed.answers else Outcome(kind="cancelled")
    if observed.stopping == "cancel":
        return Outcome(kind="cancelled", exit_code=completed.exit_code)
    return _fault("NO_RESULT", ENDED_BY_ITSELF if observed.answers else NEVER_ANSWERED)


def _judge(observed: Observations) -> Outcome:
    if observed.failure is not None and not _hangs_in_its_exit(observed):
        return _fault(observed.failure.error_type, observed.failure.message, observed.failure.stack)
    if _finished(observed):
        return Outcome(kind="completed", exit_code=0)
    if _halted(observed) and observed.stopping != "cancel":
        return Outcome(kind="paused", message=_halted_at(observed), exit_code=observed.exit_code)
    if observed.stopping == TIME_LIMIT:
        limit = observed.time_limit_seconds
        return _fault("MAX_RUNTIME_EXCEEDED", f"the job ran longer than its max_runtime_seconds of {limit}")
    if observed.stopping is not None and (observed.forced or not _failed_by_itself(observed)):
        return Outcome(
            kind=ENDED_BY_REQUEST[observed.stopping],
            message=observed.unsaved,
            exit_code=observed.exit_code,
            on_request=observed.stopping == "pause",
        )
    if observed.stopping == "cancel":
        return Outcome(kind="cancelled", exit_code=observed.exit_code)
    if observed.pause_given_up and observed.exit_code == 0 and observed.result is not None:
        return Outcome(kind="requeued", message=STOPPED_LATE, exit_code=0)
    return _explain(observed)


def judge_part(observed: Observations) -> Outcome:
    """The same for nodes other than the first; their ranks report no result."""
    if observed.failure is not None or observed.exit_code != 0 or observed.out_of_memory_kills:
        return judge(observed)
    kind: OutcomeKind = ENDED_BY_REQUEST.get(observed.stopping or "", "completed")
    return Outcome(kind=kind, exit_code=0, on_request=observed.stopping == "pause")


def is_consequence(observed: Observations, outcome: Outcome) -> bool:
    """Whether a gang's ranks here only ended because others did; not for ranks that were killed from outside."""
    if outcome.cause != "RANK_KILLED":
        return False
    first = _first_failed(observed)
    if first is not None and first.follows:
        return True
    was_killed = first is None or first.signal in KILLED_FROM_OUTSIDE or first.exit_code == EXIT_STOPPED
    return observed.terminated or not was_killed


def _first_failed(observed: Observations) -> RankExit | None:
    """Not one that its launcher ended for another, unless there are only such here."""
    failed = [gone for gone in observed.exits if gone.exit_code != 0]
    return next((gone for gone in failed if not gone.follows), failed[0] if failed else None)


def _hangs_in_its_exit(observed: Observations) -> bool:
    """Whether the result was reported and only the exit hangs."""
    return observed.failure is not None and observed.failure.error_type == "HANG" and observed.result is not None


def _finished(observed: Observations) -> bool:
    if _hangs_in_its_exit(observed):
        return observed.result is not None and observed.result.stopped is None
    if observed.exit_code != 0:
        return False
    if observed.result is not None:
        return observed.result.stopped is None
    # A script without hooks reports by its exit code alone.
    return _has_no_hooks(observed) and observed.halts is None and observed.stopping is None


def _has_no_hooks(observed: Observations) -> bool:
    return observed.custom and not observed.has_connected


def _halted(observed: Observations) -> bool:
    """Whether the ranks stopped where the job's document says so, whatever was requested meanwhile."""
    if observed.halts is None or observed.result is None or observed.result.stopped != HALT:
        return False
    # A script says itself where it has halted.
    step = observed.result.step or 0
    if observed.custom and not is_halt(observed.halts, step=step, epoch=0.0, total_steps=None):
        return False
    return observed.exit_code == 0 or _hangs_in_its_exit(observed)


def _halted_at(observed: Observations) -> str:
    step = observed.result.step if observed.result is not None else None
    return "halted" if step is None else halted_at(step)


def _failed_by_itself(observed: Observations) -> bool:
    """Whether a rank failed although it was only asked to save and stop."""
    if observed.terminated:
        return False
    return bool(observed.reported) or any(
        e.exit_code != 0 and e.signal not in KILLED_FROM_OUTSIDE for e in observed.exits
    )


def _explain(observed: Observations) -> Outcome:
    first = _first_failed(observed)
    own_fault = _own_fault(observed, 0 if first is None else first.rank)
    # A rank that was ended because another had ended, or lost its connection to it, knows no cause.
    knowing = next((failure for failure in observed.reported if failure.error_type != "RANK_KILLED"), None)
    killed = _killed_for_memory(observed, first)
    # Failures of other ranks after the first one was killed follow from that.
    if killed is not None and (knowing is None or killed is first):
        return _of_rank(observed, killed, "HOST_OUT_OF_MEMORY", _killed_for_memory_text(observed))
    if knowing is not None:
        return _as_reported(observed, knowing, first, _own_fault(observed, knowing.rank))
    ended = next((failure for failure in observed.reported if first is not None and failure.rank == first.rank), None)
    if ended is not None:
        return _as_reported(observed, ended, first, "RANK_KILLED")
    if first is not None and first.follows:
        return _of_rank(observed, first, "RANK_KILLED", "was ended by mpirun because another rank had failed")
    if first is not None and first.signal in KILLED_FROM_OUTSIDE:
        return _of_rank(observed, first, "RANK_KILLED", f"was killed from outside ({first.signal})")
    if first is not None and first.signal is not None:
        return _of_rank(observed, first, own_fault, f"crashed ({first.signal})")
    if first is not None:
        return _ended(observed, first, own_fault)
    if observed.exit_code == 0:
        return _no_result(observed)
    if observed.out_of_memory_kills:
        return _fault(
            "HOST_OUT_OF_MEMORY", f"the ranks' parent {_killed_for_memory_text(observed)}", _tail(observed, 0)
        )
    return _fault(
        "RANK_KILLED",
        f"the ranks ended without reporting an error (exit code {observed.exit_code})",
        _tail(observed, 0),
    )


def _own_fault(observed: Observations, rank: int) -> str:
    return "SCRIPT_ERROR" if observed.is_script(rank) else "TRAINER_ERROR"


def _killed_for_memory_text(observed: Observations) -> str:
    limit = observed.exceeded_memory_mb
    return KILLED_AT_LIMIT.format(limit) if limit else KILLED_FOR_MEMORY


def _killed_for_memory(observed: Observations, first: RankExit | None) -> RankExit | None:
    """The first rank killed by the kernel, not by the agent, which kills those that outlive the first failure."""
    if not observed.out_of_memory_kills or observed.terminated or first is None:
        return None
    ours_from = math.inf if first.at is None else first.at + TEARDOWN_SECONDS
    return next((e for e in observed.exits if e.signal == "SIGKILL" and (e.at is None or e.at < ours_from)), None)


def _as_reported(observed: Observations, failure: Failure, first: RankExit | None, own_fault: str) -> Outcome:
    cause = failure.error_type if failure.error_type in CAUSES_FROM_RANKS else own_fault
    message = failure.message or f"{observed.named(failure.rank)} failed without giving a reason"
    if observed.is_script(failure.rank):
        message = with_place(message, failure.stack)
    if failure.message and failure.rank in observed.instances:
        message = f"{message}; {observed.named(failure.rank)} reported it"
    if cause == "STORAGE_ERROR" and observed.disk_error:
        cause, message = "DISK_FULL", f"{message} ({observed.disk_error})"
    elif cause == own_fault and observed.out_of_memory_kills and KILLED_CHILD in message:
        # A data loader's worker, reported by the rank that started it.
        cause = "HOST_OUT_OF_MEMORY"
    return Outcome(
        kind="failed",
        cause=cause,
        message=message,
        stack=failure.stack,
        exit_code=first.exit_code if first is not None else observed.exit_code,
        related_task=f"rank-{failure.rank}",
    )


def _no_result(observed: Observations) -> Outcome:
    if observed.result is not None:
        return _fault("NO_RESULT", f"the trainer stopped for a {observed.result.stopped} that was not requested")
    if _has_no_hooks(observed) and observed.halts is not None:
        return _fault("INVALID_CONFIG", NEVER_HALTED)
    return _fault("NO_RESULT", "every rank exited with 0, but none reported a result", _tail(observed, 0))


def _ended(observed: Observations, first: RankExit, own_fault: str) -> Outcome:
    """Of a script without hooks, or whose hooks said nothing, the traceback in its output says why."""
    outcome = _of_rank(observed, first, own_fault, f"ended with exit code {first.exit_code}")
    is_uncaught = observed.is_script(first.rank) and first.exit_code == UNCAUGHT_EXCEPTION
    raised = last_raised(observed.last_lines.get(first.rank, ())) if is_uncaught else None
    if raised is None:
        return outcome
    if not raised.is_end:  # it may have been handled
        return replace(outcome, message=f"{outcome.message}; the last exception that it printed: {raised}")
    return replace(outcome, message=f"{raised}; {outcome.message}")


def _of_rank(observed: Observations, first: RankExit, cause: str, what: str) -> Outcome:
    return Outcome(
        kind="failed",
        cause=cause,
        message=f"{observed.named(first.rank)} {what}",
        stack=_tail(observed, first.rank),
        exit_code=first.exit_code,
        related_task=f"rank-{first.rank}",
    )


def _fault(cause: str, message: str, stack: str = "") -> Outcome:
    return Outcome(kind="failed", cause=cause, message=message, stack=stack)


def _tail(observed: Observations, rank: int) -> str:
    return "\n".join(observed.last_lines.get(rank, ()))
