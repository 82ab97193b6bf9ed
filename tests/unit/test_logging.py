"""Logs: one JSON object a line, with the ids of what is being worked on."""

import json
import logging
import threading
from collections.abc import Iterator

import pytest

from config.logging import configure_logging, log_context


@pytest.fixture
def _root_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    for handler in list(root.handlers):
        root.removeHandler(handler)
    for handler in handlers:
        root.addHandler(handler)
    root.setLevel(level)
    logging.captureWarnings(capture=False)


@pytest.mark.usefixtures("_root_as_it_was")
def test_line_holds_message_level_and_ids(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", process="api")
    logger = logging.getLogger("test")

    with log_context(request="req_1"), log_context(job="job-1", attempt=2):
        logger.info("saved %s\nfiles", 3)
    logger.debug("not wanted")
    logger.warning("outside")

    first, second = map(json.loads, capsys.readouterr().err.splitlines())
    assert first["at"].endswith("Z")
    assert {**first, "at": ""} == {
        "at": "", "level": "INFO", "process": "api", "logger": "test", "request": "req_1", "job": "job-1",
        "attempt": 2, "message": "saved 3\nfiles",
    }  # fmt: skip
    assert "job" not in second


@pytest.mark.usefixtures("_root_as_it_was")
def test_exception_comes_with_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("INFO", process="api")

    try:
        raise ValueError("no")
    except ValueError:
        logging.getLogger("test").exception("failed")

    line = json.loads(capsys.readouterr().err)
    assert line["message"] == "failed"
    assert "ValueError: no" in line["error"]


@pytest.mark.usefixtures("_root_as_it_was")
def test_ids_stay_with_their_thread(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("INFO", process="api")

    with log_context(job="job-1"):
        thread = threading.Thread(target=lambda: logging.getLogger("test").info("elsewhere"))
        thread.start()
        thread.join()

    assert "job" not in json.loads(capsys.readouterr().err)
