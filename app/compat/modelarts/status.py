"""Job state and attempts → ModelArts' status: phases, tasks, running records, durations. Pure."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from app.domain.lifecycle.states import RUNNING, TERMINAL, JobState
from app.domain.spec.frameworks.custom import processes_per_node
from app.domain.spec.model import JobDocument
from app.services.attempts.placed_instances import ranks_by_instance
from app.services.jobs.details import JobDetails
from app.services.rows import Attempt

_S = JobState
_RUNNING = ("Running", "Running")
STATES: dict[JobState, tuple[str, str]] = {
    _S.PENDING: ("Creating", "Creating"),
    _S.QUEUED: ("Pending", "Queuing"),
    _S.SCHEDULING: ("Pending", "Queuing"),
    _S.PREPARING: _RUNNING,
    _S.TRAINING: _RUNNING,
    _S.CHECKPOINTING: _RUNNING,
    _S.EVALUATING: _RUNNING,
    _S.SERVING: _RUNNING,
    _S.EXPORTING: _RUNNING,
    _S.PAUSED: ("Pending", "Queuing"),
    _S.COMPLETED: ("Completed", "Completed"),
    _S.FAILED: ("Failed", "Failed"),
    _S.CANCELLED: ("Terminated", "Terminated"),
    _S.PREEMPTED: ("Terminated", "Terminated"),
}
_STOPPED = (_S.CANCELLED, _S.PREEMPTED)
# Level-1 status → states of the jobs that may have it.
STATES_OF_PHASES: dict[str, tuple[JobState, ...]] = {
    **{phase: tuple(state for state in JobState if STATES[state][0] == phase) for phase, _ in STATES.values()},
    "Terminating": tuple(state for state in JobState if state not in TERMINAL),
    "Abnormal": (_S.FAILED, *_STOPPED),
}
# Failures of the platform, which ModelArts distinguishes from failed jobs.
_LOST = ("NODE_LOST", "SUPERVISOR_LOST")
_STARTS = ("init_or_rescheduled", "restarted")
_RANK, _WORKER = "rank-", "worker-"


class UncontrolledJobs(NamedTuple):
    """Ids of jobs that the platform does not control; usually none."""

    unheard: frozenset[str] = frozenset()  # running, but the lease was not renewed for too long
    unstoppable: frozenset[str] = frozenset()  # stopped, but with an unkillable process


NO_TROUBLE = UncontrolledJobs()


def phase_of(details: JobDetails, trouble: UncontrolledJobs = NO_TROUBLE) -> tuple[str, str]:
    """Level-1 and level-2 status."""
    job = details.job
    if job.state is JobState.FAILED and job.error_type in _LOST:
        return "Abnormal", "Lost"
    if job.state is JobState.FAILED and job.attempt == 0:
        return "Abnormal", "CreateFailed"
    if job.state in _STOPPED and job.id in trouble.unstoppable:
        return "Abnormal", "TerminatedFailed"
    if details.requested == "cancel" and job.state not in TERMINAL:
        return "Terminating", "Terminating"
    if job.state in RUNNING and job.id in trouble.unheard:
        return "Running", "Unknown"
    return STATES[job.state]


def status_of(
    details: JobDetails, attempts: Sequence[Attempt], *, now: datetime, trouble: UncontrolledJobs = NO_TROUBLE
) -> dict[str, Any]:
    """``duration`` is the sum of the running records; the first one begins at ``start_time``."""
    phase, secondary = phase_of(details, trouble)
    begun = [each for each in attempts if each.started_at is not None or each.ended_at is not None]
    found: dict[str, Any] = {
        "phase": phase,
        "secondary_phase": secondary,
        "duration": sum(_ran(each, now) for each in begun),
        "start_time": milliseconds(_begin(begun[0])) if begun else 0,
        "node_count_metrics": node_counts(attempts),
        "tasks": tasks_of(details),
    }
    if ended := [each for each in attempts if each.ended_at is not None]:
        found["task_statuses"] = task_statuses(details, ended[-1])
    if begun:
        found["running_records"] = [record_of(each, details.document) for each in begun]
    return found


def times_of_search(details: JobDetails, now: datetime) -> dict[str, int]:
    """Of a sweep, which has no attempts: from its first trial to its end."""
    begun, ended = details.job.started_at, details.job.finished_at or now
    if begun is None:
        return {"start_time": 0, "duration": 0}
    return {"start_time": milliseconds(begun), "duration": max(0, milliseconds(ended) - milliseconds(begun))}


def tasks_of(details: JobDetails) -> list[str]:
    """A task per node, or per instance of a role."""
    return [*ranks_of_tasks(details.document)]


def ranks_of_tasks(document: JobDocument) -> dict[str, range]:
    """Task → its ranks."""
    if document.tasks:
        return {f"{role}-{index}": ranks for (role, index), ranks in ranks_by_instance(document).items()}
    each = processes_per_node(document, devices=document.resource_config.gpu_count)
    nodes = range(document.resource_config.node_count)
    return {f"{_WORKER}{number}": range(number * each, (number + 1) * each) for number in nodes}


def node_counts(attempts: Sequence[Attempt]) -> list[list[int]] | None:
    """[milliseconds, number of nodes from then on]; None before the first attempt."""
    found: list[list[int]] = []
    for each in attempts:
        found.append([milliseconds(each.created_at), len(each.node_names)])
        if each.ended_at is not None:
            found.append([milliseconds(each.ended_at), 0])
    return found or None


def record_of(attempt: Attempt, document: JobDocument) -> dict[str, Any]:
    """The running record of an attempt, with times in seconds."""
    found: dict[str, Any] = {
        "start_at": seconds(_begin(attempt)),
        "start_type": attempt.start_type if attempt.start_type in _STARTS else _STARTS[0],
    }
    optional = {
        "end_at": seconds(attempt.ended_at) if attempt.ended_at is not None else None,
        "end_reason": attempt.end_reason,
        "end_related_task": related_task(attempt, document),
        "end_recover": attempt.policy or attempt.end_recover,
        "end_recover_before_downgrade": attempt.recover_before_downgrade,
    }
    return found | {name: value for name, value in optional.items() if value is not None}


def related_task(attempt: Attempt, document: JobDocument) -> str | None:
    """The task of the rank or node that ended the attempt, or None."""
    named = attempt.end_related_task
    if not named:
        return None
    if named in attempt.node_names:
        return next((task for task, node in nodes_of_tasks(attempt) if node == named), None)
    rank = named.removeprefix(_RANK)
    if not named.startswith(_RANK) or not rank.isdecimal():
        return None
    if attempt.instances:
        tasks = ranks_of_tasks(document).items()
        return next((task for task, ranks in tasks if int(rank) in ranks), None)
    per_node = processes_per_node(document, devices=document.resource_config.gpu_count)
    return f"{_WORKER}{min(int(rank) // per_node, len(attempt.node_names) - 1)}"


def task_statuses(details: JobDetails, last: Attempt) -> list[dict[str, Any]]:
    """The status of each task of an ended attempt.

    Instances of roles have exit codes of their own; of equal nodes only the failed one's is known.
    """
    state = details.job.state
    failed = state is JobState.FAILED
    exit_code = last.exit_code if last.exit_code is not None else (1 if failed else 0)
    message = (details.job.error_message or last.end_reason or "") if failed else last.end_reason or ""
    tasks = [task for task, _ in nodes_of_tasks(last)]
    blamed = related_task(last, details.document) or tasks[0]
    own = {
        f"{each['role']}-{each['index']}": each["exit_code"]
        for each in last.instances or ()
        if each.get("exit_code") is not None
    }
    codes = {task: exit_code for task in tasks if exit_code == 0 or task == blamed} | own
    found = []
    for task in tasks:
        known = {"exit_code": codes[task]} if task in codes else {}
        if state is JobState.COMPLETED:
            how = _in_completed_job(own.get(task), message)
        elif task == blamed:
            how = message
        elif own.get(task) == 0:
            how = "completed"  # before another failed or all were stopped
        else:
            how = message if exit_code == 0 else f"stopped because {blamed} had ended"
        found.append({"task": task, **known, "message": how})
    return found


def _in_completed_job(code: int | None, message: str) -> str:
    return "stopped when all tasks but sidecars had ended" if code else message


def nodes_of_tasks(attempt: Attempt) -> list[tuple[str, str]]:
    """(task, node) of an attempt."""
    if attempt.instances:
        return [(f"{each['role']}-{each['index']}", each["node"]) for each in attempt.instances]
    return [(f"{_WORKER}{number}", node) for number, node in enumerate(attempt.node_names)]


def part_of_task(attempt: Attempt, task: str) -> int:
    """The number of the task's node among those of the attempt."""
    node = dict(nodes_of_tasks(attempt)).get(task)
    return attempt.node_names.index(node) if node in attempt.node_names else 0


def milliseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def seconds(moment: datetime) -> int:
    return int(moment.timestamp())


def _ran(attempt: Attempt, now: datetime) -> int:
    return max(0, milliseconds(attempt.ended_at or now) - milliseconds(_begin(attempt)))


def _begin(attempt: Attempt) -> datetime:
    return attempt.started_at or attempt.created_at
