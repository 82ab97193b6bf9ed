"""A small Weights & Biases server: what its own client asks while it opens, continues and ends a run.

Made from what wandb 0.31 sends: GraphQL by the names of its operations, and the file stream of a run's history.
"""

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.doubles.http_servers import QuietHandler, answering

Json = dict[str, Any]
HISTORY, SUMMARY = "wandb-history.jsonl", "wandb-summary.json"
ENTITY = "me"
# Of this machine, and no loopback address to W&B's client, which would go there past its proxy.
HOST = "0.0.0.0"


@dataclass
class Run:
    """``history`` are its rows; ``ends`` the exit codes with which attempts have ended it; ``marked``: as preempted."""

    project: str
    described: Json
    config: Json = field(default_factory=dict)
    history: list[Json] = field(default_factory=list)
    summary: Json = field(default_factory=dict)
    ends: list[int] = field(default_factory=list)
    marked: int = 0

    def bucket(self, name: str) -> Json:
        project = {"id": "p", "name": self.project, "entity": {"id": "e", "name": ENTITY}}
        return {
            "id": f"id-{name}",
            "name": name,
            "displayName": self.described["displayName"],
            "config": json.dumps(self.config),
            "tags": self.described["tags"],
            "summaryMetrics": json.dumps(self.summary),
            "historyLineCount": len(self.history),
            "historyTail": json.dumps([json.dumps(row) for row in self.history[-1:]]),
            "logLineCount": 0,
            "eventsLineCount": 0,
            "eventsTail": "[]",
            # Without it a client takes the run for one that was never started.
            "wandbConfig": json.dumps({"t": self.config.get("_wandb", {}).get("value", {}).get("t", {})}),
            "project": project,
        }


class FakeWandb(ThreadingHTTPServer):
    """``key``: what clients must have; ``broken``: every answer is 503; ``forgets``: points are refused;
    ``deleted``: runs are refused; ``late``: so many questions for the run are answered without its last points.
    """

    daemon_threads = True

    def __init__(self, port: int = 0) -> None:
        super().__init__((HOST, port), _Handler)
        self.key: str | None = None
        self.broken = self.forgets = self.deleted = False
        self.late = 0
        self.seen: list[str] = []
        self.runs: dict[str, Run] = {}
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.server_address[1]}"

    def query(self, asked: Json) -> Json:
        name, variables = asked.get("operationName") or _operation(asked["query"]), asked.get("variables") or {}
        calls = {
            "RunResumeStatus": self._resumed,
            "UpsertBucket": self._upserted,
            "CreateRunFiles": lambda _: {"createRunFiles": {"runID": "r", "uploadHeaders": [], "files": []}},
            "Viewer": lambda _: {"viewer": {"id": "u", "entity": ENTITY, "username": ENTITY, "flags": "{}"}},
            "Run": self._run,
        }
        with self.lock:
            self.seen.append(name)
            if name not in calls:
                return {"errors": [{"message": f"unknown operation {name}"}]}
            return {"data": calls[name](variables)}

    def stream(self, name: str, sent: Json) -> None:
        with self.lock:
            self.seen.append("file_stream")
            run, files = self.runs[name], sent.get("files", {})
            if HISTORY in files:
                rows = [json.loads(line) for line in files[HISTORY]["content"]]
                run.history[files[HISTORY]["offset"] :] = rows
            if SUMMARY in files:
                run.summary = json.loads(files[SUMMARY]["content"][-1])
            if sent.get("preempting"):
                run.marked += 1
            if sent.get("complete"):
                run.ends.append(sent["exitcode"])

    def _resumed(self, asked: Json) -> Json:
        run = self.runs.get(asked["name"])
        bucket = run.bucket(asked["name"]) if run is not None else None
        return {"model": {"id": "p", "name": asked["project"], "entity": {"id": "e", "name": ENTITY}, "bucket": bucket}}

    def _upserted(self, asked: Json) -> Json:
        is_new = asked["name"] not in self.runs
        if is_new:
            self.runs[asked["name"]] = Run(asked["project"], asked)
        run = self.runs[asked["name"]]
        if asked["config"]:
            run.config = json.loads(asked["config"])
        return {"upsertBucket": {"bucket": run.bucket(asked["name"]), "inserted": is_new}}

    def _run(self, asked: Json) -> Json:
        run = self.runs[asked["name"]]
        user = {"name": ENTITY, "username": ENTITY}
        more = {"projectId": "1", "state": "running", "user": user, "historyKeys": {}, "systemMetrics": "{}"}
        if self.late:
            self.late -= 1
            more["summaryMetrics"] = "{}"
        return {"project": {"run": {**run.bucket(asked["name"]), **more}}}


def _operation(query: str) -> str:
    return query.partition("query ")[2].partition("(")[0].strip()


class _Handler(QuietHandler, BaseHTTPRequestHandler):
    server: FakeWandb

    def do_POST(self) -> None:
        sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        owner = self.server
        *_, name, last = self.path.split("/")
        if owner.broken:
            self.reply_json(503, {})
        elif owner.key is not None and self.headers.get("Authorization") != f"Basic {login(owner.key)}":
            sent_with = self.headers.get("Authorization")  # some servers repeat the request
            self.reply_json(401, {"errors": [{"message": f"user is not logged in: Authorization: {sent_with}"}]})
        elif owner.deleted and b"UpsertBucket" in sent:
            self.reply_json(409, {"errors": [{"message": "the run was previously created and deleted"}]})
        elif last == "graphql":
            self.reply_json(200, owner.query(json.loads(sent)))
        elif last == "file_stream" and owner.forgets:
            self.reply_json(404, {})
        elif last == "file_stream":
            owner.stream(name, json.loads(sent))
            self.reply_json(200, {"exitcode": None, "limits": {}})
        else:
            self.reply_json(404, {})


def login(key: str) -> str:
    """The key as clients send it."""
    return base64.b64encode(f"api:{key}".encode()).decode()


@contextmanager
def running_wandb(port: int = 0) -> Iterator[FakeWandb]:
    """A server that answers while the block runs."""
    with answering(FakeWandb(port)) as server:
        yield server
