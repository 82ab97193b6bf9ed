"""What the API process logs: JSON, and with the id of the request that it is about."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.factory import create_app, from_environment
from config.logging import configure_logging
from tests.builders.factories import make_document
from tests.doubles.fakes import FakeDispatcher
from tests.systems.apps import Api


class BrokenDispatcher(FakeDispatcher):
    def ring_admit(self, job_id: str, queue: str, priority: int) -> None:
        raise RuntimeError("a bug")


@pytest.fixture(autouse=True)
def _root_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_process_logs_json_at_the_configured_level(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRAINYARD_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("TRAINYARD_BROKER_URL", "redis://127.0.0.1:1/0")
    monkeypatch.setenv("TRAINYARD_LOG_LEVEL", "WARNING")

    from_environment()
    logging.getLogger("x").info("not wanted")
    logging.getLogger("x").warning("wanted")

    assert [(line["process"], line["message"]) for line in lines(capsys)] == [("api", "wanted")]


def test_a_fault_is_logged_with_its_traceback_and_the_id_that_the_caller_got(
    sqlite_api: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    app = create_app(sqlite_api.app.extensions["trainyard"].settings, db=sqlite_api.db, dispatcher=BrokenDispatcher())
    configure_logging("INFO", process="api")

    answer = app.test_client().post(
        "/v1/jobs", json=make_document(), headers={"Authorization": f"Bearer {sqlite_api.key}"}
    )
    logging.getLogger("x").warning("after it")

    fault, after = lines(capsys)
    assert sqlite_api.problem(answer, 500)["code"] == "INTERNAL"
    assert answer.json is not None
    assert fault["request"] == answer.json["meta"]["request_id"] == answer.headers["X-Request-ID"]
    assert "RuntimeError: a bug" in fault["error"]
    assert "request" not in after


def test_a_fault_in_a_stream_is_logged_with_the_id_too(sqlite_api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    job_id = sqlite_api.submit()
    answer = sqlite_api.call("GET", f"/v1/jobs/{job_id}/events", headers={"Accept": "text/event-stream"})
    configure_logging("INFO", process="api")
    pieces: Iterator[Any] = iter(answer.response)
    next(pieces)
    with sqlite_api.db.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE job_event SET at = 'no time'")

    rest = "".join(piece.decode() if isinstance(piece, bytes) else piece for piece in pieces)
    answer.close()

    assert "event: error" in rest
    assert [line["request"] for line in lines(capsys)] == [answer.headers["X-Request-ID"]]
