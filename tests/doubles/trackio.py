"""A small Trackio server: what it answers a job's run with, made from what Trackio 0.43 does."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.doubles.http_servers import QuietHandler, answering

Json = dict[str, Any]


@dataclass
class Run:
    """``logs`` by their ids."""

    project: str
    name: str
    config: Json = field(default_factory=dict)
    logs: dict[str, Json] = field(default_factory=dict)


class FakeTrackio(ThreadingHTTPServer):
    """``token``: what writes must bring; ``version``: of the interface; ``broken``: every answer is 503."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.token, self.version, self.broken = "", 1, False
        self.runs: dict[str, Run] = {}
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def summary(self, asked: Json) -> Json:
        run = self.runs.get(asked["run_id"])
        if run is None or run.project != asked["project"]:
            return {**asked, "num_logs": 0, "metrics": [], "config": None, "last_step": None}
        steps = [each["step"] for each in run.logs.values()]
        return {**asked, "num_logs": len(steps), "config": run.config, "last_step": max(steps)}

    def log(self, asked: Json) -> None:
        for each in asked["logs"]:
            run = self.runs.setdefault(each["run_id"], Run(each["project"], each["run"]))
            run.logs.setdefault(each["log_id"], {"step": each["step"], **each["metrics"]})
            run.config = each.get("config") or run.config


class _Handler(QuietHandler, BaseHTTPRequestHandler):
    server: FakeTrackio

    def do_GET(self) -> None:
        if self.path.partition("?")[0] == "/version":
            self.reply_json(200, {"version": "0.43.0", "api_version": self.server.version})
        else:
            self.reply_json(404, {})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["kwargs"]
        owner, token = self.server, self.headers.get("X-Trackio-Write-Token")
        with owner.lock:
            if owner.broken:
                self.reply_json(503, {"error": "writes are paused"})
            elif self.path == "/api/get_run_summary":
                self.reply_json(200, {"data": owner.summary(asked)})
            elif self.path != "/api/bulk_log":
                self.reply_json(404, {"error": f"Unknown API: {self.path}"})
            elif token != owner.token:
                self.reply_json(400, {"error": f"A write_token is required, not {token}"})  # some repeat the request
            else:
                owner.log(asked)
                self.reply_json(200, {"data": None})


@contextmanager
def running_trackio() -> Iterator[FakeTrackio]:
    with answering(FakeTrackio()) as server:
        yield server
