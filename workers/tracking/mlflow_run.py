"""A job as one run of an MLflow server, by its REST API: found again by its tag, continued where it stopped.

How far the run has got is a tag of the run, written in the request that delivers the points. So nothing has to be
remembered here, and a run that was deleted is created again.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workers.tracking.failures import NotDelivered
from workers.tracking.json_api import JsonApi, ServerRefuses

API = "api/2.0/mlflow"
JOB_TAG, SEQ_TAG, STEP_TAG = "trainyard.job_id", "trainyard.seq", "trainyard.last_step"
ATTEMPT_TAG, STATE_TAG, CHANGED_TAG = "trainyard.attempt", "trainyard.state", "trainyard.changed_parameters"
BEGUN_TAG = "trainyard.begun_attempt"  # the newest that has opened the run, with or without points
REPEATED_TAG = "trainyard.repeated_in_attempt_"
RUNNING, LATER = "RUNNING", "SCHEDULED"
_ENDS = {"COMPLETED": "FINISHED", "FAILED": "FAILED", "CANCELLED": "KILLED", "PREEMPTED": "KILLED"}
_NOT_FOUND, _EXISTS = "RESOURCE_DOES_NOT_EXIST", "RESOURCE_ALREADY_EXISTS"
_NOT_IN_NAMES = re.compile(r"[^\w\-. :/]", re.ASCII)
_LEADING_DOTS = re.compile(r"^\.\.+")
LONGEST_NAME, LONGEST_PARAM, LONGEST_TAG = 250, 500, 5000
PARAMS_PER_CALL = 100


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """What is known of a job when its attempt begins; times are milliseconds since 1970."""

    job_id: str
    name: str
    attempt: int
    experiment: str
    started_ms: int
    params: Mapping[str, str]
    tags: Mapping[str, str]


class MlflowRun:
    def __init__(self, api: JsonApi, facts: RunFacts) -> None:
        self._api = api
        self._facts = facts
        self._id = ""
        self._last_step = -1  # highest delivered
        self._attempt = ""  # whose points were delivered last

    def open(self) -> int:
        """Find or create the run; returns the arrival number up to which it has the job's points.

        Raises NotDelivered.
        """
        experiment = self._experiment()
        found = self._find(experiment)
        tags, params = {}, {}
        if found is None:
            self._id = self._create(experiment)
        else:
            self._id = _text(found, "info", "run_id")
            tags, params = _pairs(found, "tags"), _pairs(found, "params")
        self._last_step = _number(tags.get(STEP_TAG), -1)
        self._attempt = tags.get(ATTEMPT_TAG, "")
        if _number(tags.get(BEGUN_TAG), 0) > self._facts.attempt:
            return _number(tags.get(SEQ_TAG), 0)  # the later attempt has described it
        self._describe(params)
        if found is not None:
            self._api.post(f"{API}/runs/update", {"run_id": self._id, "status": RUNNING})
        return _number(tags.get(SEQ_TAG), 0)

    def send(self, points: Sequence[list[Any]], seq: int, attempt: int) -> None:
        """Deliver points of an attempt and note how far they reach. Raises NotDelivered."""
        steps = [int(step) for _, step, *_ in points]
        last_step = max(self._last_step, *steps)
        tags = {SEQ_TAG: str(seq), STEP_TAG: str(last_step), ATTEMPT_TAG: str(attempt)}
        if str(attempt) != self._attempt and min(steps) <= self._last_step:
            # MLflow keeps every point of a step; the later one counts as its newest value.
            tags[f"{REPEATED_TAG}{attempt}"] = f"steps {min(steps)} to {self._last_step}"
        metrics = [
            {"key": _name(name), "value": value, "timestamp": at_ms, "step": step}
            for name, step, at_ms, value, *_ in points
        ]
        self._api.post(f"{API}/runs/log-batch", {"run_id": self._id, "metrics": metrics, "tags": _listed(tags)})
        self._last_step, self._attempt = last_step, str(attempt)

    def end(self, state: str, at_ms: int) -> None:
        """Write the job's state after the attempt; the run is ended with the job. Raises NotDelivered.

        Not when a later attempt has begun: its state is the newer one.
        """
        run = self._api.get(f"{API}/runs/get", {"run_id": self._id}).get("run")
        if _number(_pairs(run if isinstance(run, dict) else {}, "tags").get(BEGUN_TAG), 0) > self._facts.attempt:
            return
        self._api.post(f"{API}/runs/log-batch", {"run_id": self._id, "tags": _listed({STATE_TAG: state})})
        status: dict[str, Any] = {"status": _ENDS.get(state, LATER)}
        if state in _ENDS:
            status["end_time"] = at_ms
        self._api.post(f"{API}/runs/update", {"run_id": self._id, **status})

    def _experiment(self) -> str:
        name = self._facts.experiment
        try:
            return self._experiment_named(name)
        except ServerRefuses as error:
            if error.code != _NOT_FOUND:
                raise
        try:
            return _text(self._api.post(f"{API}/experiments/create", {"name": name}), "experiment_id")
        except ServerRefuses as error:
            if error.code != _EXISTS:  # another job has just created it
                raise
            return self._experiment_named(name)

    def _experiment_named(self, name: str) -> str:
        found = self._api.get(f"{API}/experiments/get-by-name", {"experiment_name": name})
        if _text(found, "experiment", "lifecycle_stage") == "deleted":
            raise NotDelivered(f"experiment {name} is deleted; restore it, or name another one", refused=True)
        return _text(found, "experiment", "experiment_id")

    def _find(self, experiment: str) -> dict[str, Any] | None:
        query = {
            "experiment_ids": [experiment],
            "filter": f"tags.`{JOB_TAG}` = '{self._facts.job_id}'",
            "order_by": ["attributes.start_time ASC"],
            "max_results": 1,
        }
        runs = self._api.post(f"{API}/runs/search", query).get("runs")
        return runs[0] if isinstance(runs, list) and runs and isinstance(runs[0], dict) else None

    def _create(self, experiment: str) -> str:
        body = {
            "experiment_id": experiment,
            "run_name": self._facts.name,
            "start_time": self._facts.started_ms,
            "tags": _listed({JOB_TAG: self._facts.job_id}),
        }
        return _text(self._api.post(f"{API}/runs/create", body), "run", "info", "run_id")

    def _describe(self, known: Mapping[str, str]) -> None:
        """Tags, and parameters that the run lacks: they can't change, so that new values of known ones are a tag."""
        params = {_name(name): value[:LONGEST_PARAM] for name, value in self._facts.params.items()}
        changed = [f"{name}={value}" for name, value in params.items() if known.get(name, value) != value]
        tags = {**self._facts.tags, STATE_TAG: RUNNING, BEGUN_TAG: str(self._facts.attempt)}
        if changed:
            tags[CHANGED_TAG] = f"attempt {self._facts.attempt}: {', '.join(changed)}"
        self._api.post(f"{API}/runs/log-batch", {"run_id": self._id, "tags": _listed(tags)})
        missing = [(name, value) for name, value in params.items() if name not in known]
        for start in range(0, len(missing), PARAMS_PER_CALL):
            some = dict(missing[start : start + PARAMS_PER_CALL])
            self._api.post(f"{API}/runs/log-batch", {"run_id": self._id, "params": _listed(some)})


def _name(name: str) -> str:
    """A name as MLflow takes it: a path without odd characters, and without empty or dotted parts."""
    parts = (part for part in _NOT_IN_NAMES.sub("_", name[:LONGEST_NAME]).split("/") if part.strip(". "))
    return _LEADING_DOTS.sub("_", "/".join(parts)) or "_"


def _listed(values: Mapping[str, str]) -> list[dict[str, str]]:
    """As MLflow takes them, which refuses a whole call for one name; of names that become equal, the last."""
    named = {_name(key): value[:LONGEST_TAG] for key, value in values.items()}
    return [{"key": key, "value": value} for key, value in named.items()]


def _pairs(run: Mapping[str, Any], kind: str) -> dict[str, str]:
    data = run.get("data")
    listed = data.get(kind) if isinstance(data, dict) else None
    pairs: Iterable[Any] = listed if isinstance(listed, list) else ()
    return {str(each.get("key")): str(each.get("value")) for each in pairs if isinstance(each, dict)}


def _text(answer: Mapping[str, Any], *path: str) -> str:
    """The text at this path of an answer. Raises NotDelivered."""
    found: Any = answer
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    if not isinstance(found, str) or not found:
        raise NotDelivered(f"its answer has no {'.'.join(path)}; is url an MLflow server?", refused=True)
    return found


def _number(text: str | None, default: int) -> int:
    return int(text) if text is not None and re.fullmatch(r"[0-9]{1,18}", text) else default
