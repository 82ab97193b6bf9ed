"""schemathesis over every operation that the description names, with all its checks, as one caller."""

import copy
import json
import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import schemathesis
from flask import Flask
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import events, from_schema
from schemathesis.engine.recorder import CheckNode, ScenarioRecorder

# Rules that no schema can say: what is of the described shape may still mean something impossible.
ACCEPTED = ["2xx", "400", "401", "403", "404", "409", "416", "429", "501"]
REFUSED = ["400", "401", "403", "404", "405", "406", "409", "413", "415", "416", "422", "428", "429", "501"]
UNAVAILABLE = (
    "GET /health/ready",
    *(f"POST /openai/v1/{name}" for name in ("chat/completions", "completions", "embeddings", "rerank")),
)


@dataclass(kw_only=True)
class Walk:
    """``ids`` are put into paths now and then, and ``forbidden`` must be in no answer. ``own_key_id``, if there is one,
    stays alive.
    """

    key: str
    own_key_id: str
    ids: Mapping[str, Sequence[str]]
    forbidden: str
    seconds: int
    examples: int
    seed: int
    base: str = "/v1"
    problems: Counter[str] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)

    def go(self, app: Flask) -> "Walk":
        description = app.test_client().get(f"{self.base}/openapi.json").json
        assert description is not None
        schema = schemathesis.openapi.from_dict(
            _with_known(description, self.ids), config=SchemathesisConfig.from_dict(self._config())
        )
        here, there = socket.socketpair()
        there.close()
        schema.app = Watched(app, here, self)
        try:
            for event in from_schema(schema).execute():
                self._note(event)
        finally:
            here.close()
        return self

    def report(self) -> str:
        """Each problem once, the most frequent first; empty when there is none."""
        return "\n\n".join(f"{count} times: {problem}" for problem, count in self.problems.most_common(40))

    def _note(self, event: events.EngineEvent) -> None:
        if isinstance(event, events.ScenarioFinished):
            for case_id, checks in event.recorder.checks.items():
                for check in checks:
                    if check.failure_info is not None:
                        self._note_failure(event.recorder, case_id, check)
        elif isinstance(event, events.NonFatalError):
            self.problems[f"{event.label}: {event.info.message}"] += 1
        elif isinstance(event, events.FatalError):
            raise event.exception

    def _note_failure(self, recorder: ScenarioRecorder, case_id: str, check: CheckNode) -> None:
        assert check.failure_info is not None
        label = recorder.cases[case_id].value.operation.label
        answer = recorder.interactions[case_id].response
        text = answer.text if answer is not None else ""
        if check.name == "positive_data_acceptance" and _only_fractions(text):
            return
        failure = check.failure_info
        self.problems[f"{label}: {check.name}: {failure.failure}\n{failure.code_sample}\n{text[:2000]}"] += 1

    def _config(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "max-time": self.seconds,
            "auth": {"openapi": {"key": {"bearer": self.key}}},
            "generation": {"max-examples": self.examples, "allow-x00": False, "database": "none"},
            "checks": _checks(),
            # Nothing but this process runs, so the platform is rightly not ready, and no gateway answers.
            "operations": [{"include-name": name, "checks": _checks("503")} for name in UNAVAILABLE],
        }


def _checks(*also: str) -> dict[str, Any]:
    return {
        "not_a_server_error": {"expected-statuses": ["2xx", "3xx", "4xx", "501", *also]},
        "positive_data_acceptance": {"expected-statuses": [*ACCEPTED, *also]},
        "negative_data_rejection": {"expected-statuses": REFUSED},
    }


def _only_fractions(text: str) -> bool:
    """Whether all that was wrong is 5.0 for 5: the same number to JSON Schema, but not to us."""
    try:
        details = json.loads(text)["error"]["details"]
    except (ValueError, KeyError):
        return False
    return all(detail["message"].endswith("must be an integer") for detail in details)


class Watched:
    """The application, seen from outside. Its clients hang up once there is nothing to send, so streams end."""

    def __init__(self, app: Flask, hung_up: socket.socket, walk: Walk) -> None:
        self._app, self._hung_up, self._walk = app, hung_up, walk

    def __call__(self, environ: dict[str, Any], start_response: Any) -> list[bytes]:
        environ["gunicorn.socket"] = self._hung_up
        if environ["REQUEST_METHOD"] != "GET" and self._walk.own_key_id:
            environ["PATH_INFO"] = environ["PATH_INFO"].replace(self._walk.own_key_id, "key-of-another-user")
        head: list[Any] = []

        def start(status: str, headers: list[tuple[str, str]], *more: Any) -> Any:
            head[:] = [status, headers]
            return start_response(status, headers, *more)

        answer = self._app.wsgi_app(environ, start)
        try:
            body = b"".join(answer)
        finally:
            getattr(answer, "close", lambda: None)()
        status = int(head[0][:3])
        self._walk.statuses[status] += 1
        if self._walk.forbidden.encode() in body or self._walk.forbidden in str(head[1]):
            self._walk.problems[f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}: what is another's, {status}"] += 1
        return [body]


def _with_known(description: dict[str, Any], ids: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """The description, in which path parameters may also be something that exists, and nothing is asked for that comes
    to no end.
    """
    known = copy.deepcopy(description)
    for operations in known["paths"].values():
        for operation in operations.values():
            endless = ("watch", "follow")
            operation["parameters"] = [each for each in operation["parameters"] if each["name"] not in endless]
            for parameter in operation["parameters"]:
                if parameter["in"] == "path" and parameter["name"] in ids:
                    values = list(ids[parameter["name"]])
                    parameter["schema"] = {"anyOf": [{"type": "string", "enum": values}, parameter["schema"]]}
    return known
