"""A small MLflow server: the part of its REST API that a job's run needs, with the rules of the real one.

`tests/unit/workers/tracking/test_mlflow_conformance.py` holds it to what a real server does.
"""

import json
import posixpath
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.doubles.http_servers import QuietHandler, answering

_BASE = "/api/2.0/mlflow/"
_NAME = re.compile(r"[\w\-. :/]+", re.ASCII)
_BY_TAG = re.compile(r"tags\.`([^`]+)` = '([^']*)'")
MOST_METRICS = MOST_IN_ALL = 1000
Json = dict[str, Any]


class Refused(Exception):
    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


@dataclass
class Run:
    id: str
    experiment_id: str
    info: Json
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    history: list[Json] = field(default_factory=list)

    def shown(self) -> Json:
        newest = {p["key"]: p for p in sorted(self.history, key=lambda p: (p["step"], p["timestamp"]))}
        return {
            "info": {"run_id": self.id, "experiment_id": self.experiment_id, **self.info},
            "data": {
                "metrics": list(newest.values()),
                "params": [{"key": key, "value": value} for key, value in self.params.items()],
                "tags": [{"key": key, "value": value} for key, value in self.tags.items()],
            },
        }


class FakeMlflow(ThreadingHTTPServer):
    """``authorization``: what requests must bring; ``broken``: every answer is 503; ``seen``: the calls' paths."""

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.authorization: str | None = None
        self.broken = False
        self.seen: list[str] = []
        self.experiments: dict[str, str] = {}  # name → id
        self.runs: dict[str, Run] = {}
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def run_of(self, job_id: str) -> Run:
        (found,) = [run for run in self.runs.values() if run.tags.get("trainyard.job_id") == job_id]
        return found

    def answer(self, path: str, asked: Json) -> Json:
        calls: dict[str, Callable[[Json], Json]] = {
            "experiments/get-by-name": self._experiment,
            "experiments/create": self._create_experiment,
            "runs/create": self._create_run,
            "runs/get": lambda asked: {"run": self._run(asked).shown()},
            "runs/search": self._search,
            "runs/log-batch": self._log,
            "runs/update": self._update,
            "runs/delete": self._delete,
            "metrics/get-history": self._history,
        }
        if path not in calls:
            raise Refused(404, "ENDPOINT_NOT_FOUND", path)
        with self.lock:
            self.seen.append(path)
            return calls[path](asked)

    def _experiment(self, asked: Json) -> Json:
        name = asked["experiment_name"]
        if name not in self.experiments:
            raise Refused(404, "RESOURCE_DOES_NOT_EXIST", f"Could not find experiment with name '{name}'")
        found = {"experiment_id": self.experiments[name], "name": name, "lifecycle_stage": "active"}
        return {"experiment": found}

    def _create_experiment(self, asked: Json) -> Json:
        if asked["name"] in self.experiments:
            raise Refused(400, "RESOURCE_ALREADY_EXISTS", f"Experiment(name={asked['name']}) already exists.")
        self.experiments[asked["name"]] = str(len(self.experiments) + 1)
        return {"experiment_id": self.experiments[asked["name"]]}

    def _create_run(self, asked: Json) -> Json:
        info = {"status": "RUNNING", "start_time": asked["start_time"], "lifecycle_stage": "active"}
        for tag in asked["tags"]:
            _check_name(tag["key"])
        run = Run(f"{len(self.runs) + 1:032x}", asked["experiment_id"], info | {"run_name": asked["run_name"]})
        run.tags |= {tag["key"]: tag["value"] for tag in asked["tags"]}
        self.runs[run.id] = run
        return {"run": run.shown()}

    def _search(self, asked: Json) -> Json:
        matched = _BY_TAG.fullmatch(asked["filter"])
        if matched is None:
            raise Refused(400, "INVALID_PARAMETER_VALUE", f"Invalid filter '{asked['filter']}'")
        tag, value = matched.groups()
        found = [
            run.shown()
            for run in sorted(self.runs.values(), key=lambda run: run.info["start_time"])
            if run.experiment_id in asked["experiment_ids"]
            and run.info["lifecycle_stage"] == "active"
            and run.tags.get(tag) == value
        ]
        return {"runs": found[: asked["max_results"]]} if found else {}

    def _log(self, asked: Json) -> Json:
        run = self._run(asked)
        if run.info["lifecycle_stage"] != "active":
            raise Refused(400, "INVALID_PARAMETER_VALUE", f"The run {run.id} must be in the 'active' state.")
        metrics, params, tags = (asked.get(part, []) for part in ("metrics", "params", "tags"))
        if len(metrics) > MOST_METRICS or len(metrics) + len(params) + len(tags) > MOST_IN_ALL:
            raise Refused(400, "INVALID_PARAMETER_VALUE", "A batch logging request can contain at most 1000 metrics.")
        for each in (*metrics, *params, *tags):
            _check_name(each["key"])
        for each in params:
            if run.params.get(each["key"], each["value"]) != each["value"]:
                raise Refused(400, "INVALID_PARAMETER_VALUE", "Changing param values is not allowed.")
        run.history += [point for point in metrics if point not in run.history]
        run.params |= {each["key"]: each["value"] for each in params}
        run.tags |= {each["key"]: each["value"] for each in tags}
        return {}

    def _update(self, asked: Json) -> Json:
        run = self._run(asked)
        run.info |= {name: asked[name] for name in ("status", "end_time") if name in asked}
        return {"run_info": run.shown()["info"]}

    def _delete(self, asked: Json) -> Json:
        self._run(asked).info["lifecycle_stage"] = "deleted"
        return {}

    def _history(self, asked: Json) -> Json:
        points = [point for point in self._run(asked).history if point["key"] == asked["metric_key"]]
        return {"metrics": sorted(points, key=lambda point: (point["timestamp"], point["step"]))}

    def _run(self, asked: Json) -> Run:
        if asked["run_id"] not in self.runs:
            raise Refused(404, "RESOURCE_DOES_NOT_EXIST", f"Run with id={asked['run_id']} not found")
        return self.runs[asked["run_id"]]


def _check_name(name: str) -> None:
    """Names have a set of characters, and are paths in their normal form that do not lead up."""
    is_path = posixpath.normpath(name) == name and name != "." and not name.startswith(("..", "/"))
    if not is_path or not _NAME.fullmatch(name):
        raise Refused(400, "INVALID_PARAMETER_VALUE", f'Invalid value "{name}"')


class _Handler(QuietHandler, BaseHTTPRequestHandler):
    server: FakeMlflow

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        self._answer(address.path, {name: values[0] for name, values in parse_qs(address.query).items()})

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        self._answer(self.path, json.loads(self.rfile.read(length)))

    def _answer(self, path: str, asked: Json) -> None:
        owner = self.server
        if owner.broken:
            self.reply_json(503, {})
        elif owner.authorization is not None and self.headers.get("Authorization") != owner.authorization:
            self.reply_json(401, {})
        else:
            try:
                self.reply_json(200, owner.answer(path.removeprefix(_BASE), asked))
            except Refused as error:
                self.reply_json(error.status, {"error_code": error.code, "message": str(error)})


@contextmanager
def running_mlflow(port: int = 0, *, kind: type[FakeMlflow] = FakeMlflow) -> Iterator[FakeMlflow]:
    """A server that answers while the block runs."""
    with answering(kind(port)) as server:
        yield server


def now_ms() -> int:
    return int(time.time() * 1000)
