"""Sweeps → TrainingJobs with their trials, and their events. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from app.compat.ome.dialect import API_VERSION
from app.compat.ome.from_native import (
    KIND,
    STATES,
    condition,
    event_of,
    is_deleted,
    moment,
    object_of,
    resource_version,
    trial_name,
    version_of,
)
from app.compat.ome.to_native import DIALECT
from app.domain.lifecycle.states import TERMINAL as JOB_ENDED
from app.domain.lifecycle.states import JobState
from app.domain.sweeps.states import SweepState, TrialState
from app.services.jobs.details import JobDetails
from app.services.rows import Sweep, SweepEvent, Trial
from app.services.sweeps.commands import RESUMED
from app.services.sweeps.foreign import ShownSweep, counted_as
from app.services.sweeps.reading.listing import TrialDetails

_ENDS = {
    TrialState.COMPLETED: "Succeeded",
    TrialState.STOPPED: "EarlyStopped",
    TrialState.EXPLOITED: "EarlyStopped",
    TrialState.FAILED: "Failed",
    TrialState.CANCELLED: "Cancelled",
}
_PREFIX = "sweep-"
_VERSIONS = 10**5  # a resource version has five digits for them


def shown_object(found: JobDetails | ShownSweep) -> dict[str, Any]:
    """The TrainingJob."""
    return object_of(found) if isinstance(found, JobDetails) else object_of_sweep(found)


def shown_version(found: JobDetails | ShownSweep) -> str:
    return version_of(found) if isinstance(found, JobDetails) else version_of_sweep(found)


def is_withdrawn(found: JobDetails | ShownSweep) -> bool:
    return is_deleted(found) if isinstance(found, JobDetails) else bool(_foreign(found.sweep).get("deleted"))


def uid_of(sweep: Sweep) -> str:
    return sweep.id.removeprefix(_PREFIX)


def sweep_name(sweep: Sweep) -> str:
    return str(_foreign(sweep)["name"])


def version_of_sweep(found: ShownSweep) -> str:
    """Changes whenever the object does, which shows the states of its trials' jobs."""
    return resource_version(found.changed_at, found.version % _VERSIONS)


def of_trials(name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """What the jobs of the trials keep: what their pods show."""
    kept = {part: spec[part] for part in ("labels", "annotations") if spec.get(part)}
    image, model = spec["trainer"].get("image"), (spec.get("modelConfig") or {}).get("inputModel")
    if image:
        kept["trainer"] = {"image": image}
    if model:
        kept["modelConfig"] = {"inputModel": model}
    return {"trial_of": name, "spec": kept}


def object_of_sweep(found: ShownSweep) -> dict[str, Any]:
    sweep, foreign = found.sweep, _foreign(found.sweep)
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {
            "name": foreign["name"],
            "namespace": sweep.project,
            "uid": uid_of(sweep),
            "resourceVersion": version_of_sweep(found),
            "generation": 1,
            "creationTimestamp": moment(sweep.created_at),
            "labels": foreign["labels"],
            "annotations": foreign["annotations"],
        },
        "spec": {**foreign["spec"], "suspend": sweep.status == SweepState.PAUSED},
        "status": status_of_sweep(found),
    }


def status_of_sweep(found: ShownSweep) -> dict[str, Any]:
    """With the newest trials; `trialCounts` counts all of them."""
    sweep = found.sweep
    status: dict[str, Any] = {
        "conditions": list(_conditions(found)),
        "jobsStatus": [{"name": f"{sweep_name(sweep)}-job-0", **_counts(found)}],
        "retryCount": found.retries,
        "lastReconcileTime": moment(found.changed_at),
        "trialCounts": _by_state(found),
        "trials": [_trial(sweep, each) for each in found.trials],
    }
    if found.best is not None:
        status["currentOptimalTrial"] = _named(sweep, found.best)
    times = {"startTime": moment(sweep.started_at), "completionTime": moment(sweep.finished_at)}
    return status | {name: at for name, at in times.items() if at is not None}


def events_of_sweep(sweep: Sweep, events: Sequence[SweepEvent]) -> list[dict[str, Any]]:
    involved = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": sweep_name(sweep),
        "namespace": sweep.project,
        "uid": uid_of(sweep),
    }
    shown = [event_of(event, involved) for event in events]
    return [{**each, "message": _with_names(sweep, each["message"])} for each in shown]


def _with_names(sweep: Sweep, text: str) -> str:
    """The text with the names that parameters have in the manifest."""
    names: Mapping[str, str] = _foreign(sweep)["parameters"]
    longest_first = "|".join(re.escape(native) for native in sorted(names, key=len, reverse=True))
    return re.sub(rf"(?<![\w.])(?:{longest_first})(?![\w.])", lambda found: names[found[0]], text) if names else text


def _trial(sweep: Sweep, found: TrialDetails) -> dict[str, Any]:
    trial = found.trial
    state = _state_of(trial.state, found.job.status if found.job is not None else None)
    return {**_named(sweep, trial), "state": state, **({"message": trial.reason} if trial.reason else {})}


def _named(sweep: Sweep, trial: Trial) -> dict[str, Any]:
    names: Mapping[str, str] = _foreign(sweep)["parameters"]
    found = {
        "name": trial_name(sweep_name(sweep), trial.number),
        "values": {names.get(name, name): value for name, value in trial.values.items()},
    }
    return {**found, "value": trial.objectives[0]} if trial.objectives else found


def _state_of(state: str, job_status: str | None) -> str:
    """A running trial has the condition of its job."""
    if state != TrialState.RUNNING:
        return _ENDS[TrialState(state)]
    return (STATES[JobState(job_status)] if job_status else "") or "Pending"


def _by_state(found: ShownSweep) -> dict[str, int]:
    counts: dict[str, int] = {}
    for (state, job_status), count in sorted(found.counts.items(), key=str):
        name = _state_of(state, job_status)
        counts[name] = counts.get(name, 0) + count
    return counts


def _counts(found: ShownSweep) -> dict[str, int]:
    running = {status: count for (state, status), count in found.counts.items() if state == TrialState.RUNNING}
    suspended = running.get(JobState.PAUSED, 0)
    ended = sum(count for status, count in running.items() if status in JOB_ENDED)
    return {
        "ready": sum(count for status, count in running.items() if status and STATES[JobState(status)] == "Running"),
        "active": sum(running.values()) - suspended - ended,
        "succeeded": counted_as(found, TrialState.COMPLETED, TrialState.STOPPED, TrialState.EXPLOITED),
        "failed": counted_as(found, TrialState.FAILED, TrialState.CANCELLED),
        "suspended": suspended,
    }


def _conditions(found: ShownSweep) -> Iterator[dict[str, Any]]:
    sweep, state = found.sweep, found.sweep.status
    yield condition("Created", "SweepCreated", _plan(found), sweep.created_at)
    if sweep.started_at is not None:
        is_running = state in (SweepState.RUNNING, SweepState.FINISHING)
        yield condition("Running", "TrialsStarted", _progress(found), sweep.started_at, holds=is_running)
    if state == SweepState.PAUSED:
        yield condition("Suspended", "Suspended", "TrainJob is suspended", sweep.updated_at)
    elif state == SweepState.RUNNING and sweep.status_reason == RESUMED:
        yield condition("Suspended", "Resumed", "TrainJob is resumed", sweep.updated_at, holds=False)
    elif state == SweepState.COMPLETED:
        message = f"{sweep.status_reason}; {_progress(found)}"
        yield condition("Succeeded", "TrialsCompleted", message, sweep.finished_at)
        yield condition("Complete", "TrialsCompleted", message, sweep.finished_at)
    elif state in (SweepState.FAILED, SweepState.CANCELLED):
        reason = "Cancelled" if state == SweepState.CANCELLED else "TrialsFailed"
        yield condition("Failed", reason, sweep.status_reason or reason, sweep.finished_at)


def _plan(found: ShownSweep) -> str:
    config = _foreign(found.sweep)["spec"]["hyperParameterTuningConfig"]
    most = found.spec.budget.max_trials
    waits = f"; {found.sweep.pending_reason}" if found.sweep.pending_reason else ""
    return f"{config['method']} search, {f'at most {most} trials' if most else 'all points of the grid'}{waits}"


def _progress(found: ShownSweep) -> str:
    counts = ", ".join(f"{count} {state}" for state, count in _by_state(found).items()) or "none yet"
    best, metric = found.best, found.spec.objectives[0].metric  # that a perplexity is compared by is its loss
    if best is None or not best.objectives:
        return f"trials: {counts}"
    name = trial_name(sweep_name(found.sweep), best.number)
    return f"trials: {counts}; best {name}: {metric} {best.objectives[0]:g}"


def _foreign(sweep: Sweep) -> Mapping[str, Any]:
    found: Mapping[str, Any] = sweep.foreign.get(DIALECT, {})
    return found
