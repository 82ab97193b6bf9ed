"""A job as one run of a Trackio server, by the HTTP interface that Trackio's own client uses.

That interface has a version, which is asked for first. How far the run has got is a value of its configuration, written
in the transaction that stores the points; rows have ids, so that one that is sent twice is stored once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workers.tracking.failures import NotDelivered
from workers.tracking.json_api import JsonApi

VERSION = 1  # of the interface; seen with Trackio 0.43
TOKEN_HEADER = "X-Trackio-Write-Token"  # noqa: S105 – the name of a header
SEQ, STATE, ATTEMPT = "trainyard_seq", "trainyard_state", "trainyard_attempt"
RUNNING = "RUNNING"


@dataclass(frozen=True, kw_only=True)
class TrackioFacts:
    """What is known of a job when its attempt begins; ``config`` are the parameters."""

    job_id: str
    name: str
    project: str
    attempt: int
    config: Mapping[str, Any]


class TrackioRun:
    """``api`` sends the write token in ``TOKEN_HEADER``."""

    def __init__(self, api: JsonApi, facts: TrackioFacts) -> None:
        self._api, self._facts = api, facts
        self._run = {"project": facts.project, "run": facts.name, "run_id": facts.job_id}
        self._seq, self._step = 0, 0

    def open(self) -> int:
        """Find the run, which its first points create; returns the arrival number up to which it has the job's points.

        Raises NotDelivered.
        """
        version = self._api.get("version", {}).get("api_version")
        if version != VERSION:
            raise NotDelivered(
                f"it has no interface of version {VERSION}; is url a Trackio server, of version 0.43?", refused=True
            )
        found = self._call("get_run_summary", self._run)
        config = found.get("config")
        self._seq = _number(config.get(SEQ)) if isinstance(config, dict) else 0
        self._step = _number(found.get("last_step"))
        return self._seq

    def send(self, points: Sequence[list[Any]], seq: int, attempt: int) -> None:
        """Deliver points of an attempt and note how far they reach. Raises NotDelivered."""
        self._log(_rows(points, self._facts.job_id), {SEQ: seq, STATE: RUNNING, ATTEMPT: attempt})
        self._seq, self._step = seq, max(self._step, *(int(step) for _, step, *_ in points))

    def end(self, state: str, at_ms: int) -> None:
        """Write the job's state, in which it is since ``at_ms``, with an empty row: no other call changes a run's
        configuration. Raises NotDelivered.
        """
        if self._seq:  # else there is no run
            row = {"metrics": {}, "step": self._step, "log_id": f"{self._facts.job_id}:{state}:{at_ms}"}
            self._log([row], {SEQ: self._seq, STATE: state, ATTEMPT: self._facts.attempt})

    def _log(self, rows: Sequence[Mapping[str, Any]], reached: Mapping[str, Any]) -> None:
        logs: list[dict[str, Any]] = [{**self._run, **row} for row in rows]
        logs[0]["config"] = {**self._facts.config, **reached}
        self._call("bulk_log", {"logs": logs, "hf_token": None})

    def _call(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        data = self._api.post(f"api/{name}", {"kwargs": arguments}).get("data")
        return data if isinstance(data, dict) else {}


def _rows(points: Sequence[list[Any]], job_id: str) -> list[dict[str, Any]]:
    """Points of one step that arrived one after the other; NaN and infinities are texts, as Trackio's client sends
    them.
    """
    found: list[dict[str, Any]] = []
    for name, step, _, value, seq in points:
        if not found or found[-1]["step"] != step or name in found[-1]["metrics"]:
            found.append({"metrics": {}, "step": step})
        found[-1]["metrics"][name] = value
        found[-1]["log_id"] = f"{job_id}:{seq}"
    return found


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
