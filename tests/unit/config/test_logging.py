"""Logs: one JSON object a line, with the ids of what is being worked on."""

import json
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from config.logging import configure_logging, log_context
from config.redaction import Redaction

IN_A_THREAD = """
import threading
def fail():
    raise RuntimeError("with hunter2-of-ours")
thread = threading.Thread(target=fail, name="one")
thread.start()
thread.join()
"""


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
def test_what_strangers_may_cause_without_end_is_not_logged(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", process="gateway")

    logging.getLogger("tornado.general").info("Malformed HTTP message from %s: %s", None, "x")

    assert capsys.readouterr().err == ""


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
        "at": "",
        "level": "INFO",
        "process": "api",
        "logger": "test",
        "request": "req_1",
        "job": "job-1",
        "attempt": 2,
        "message": "saved 3\nfiles",
    }
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


@pytest.mark.usefixtures("_root_as_it_was")
def test_secrets_are_masked_in_messages_and_tracebacks(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("INFO", process="api", redaction=Redaction(["hunter2-of-ours"]))
    logger = logging.getLogger("test")

    try:
        raise ValueError("Authorization: Bearer abc.def and hunter2-of-ours")
    except ValueError:
        logger.exception("opening %s with %s", "redis://:pass@host/0", "hunter2-of-ours", stack_info=True)

    said = capsys.readouterr().err
    line = json.loads(said)
    assert line["message"] == "opening redis://***@host/0 with ***"
    assert "ValueError: Authorization: Bearer *** and ***" in line["error"]
    assert "test_secrets_are_masked" in line["stack"]
    assert "hunter2-of-ours" not in said


@pytest.mark.usefixtures("_root_as_it_was")
def test_the_web_server_logs_as_everything_else(capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("gunicorn.error")
    logger.propagate = False
    logger.addHandler(logging.StreamHandler())

    configure_logging("INFO", process="api")
    logger.warning("Error handling request /v1/jobs?api_key=abc")

    assert json.loads(capsys.readouterr().err)["message"] == "Error handling request /v1/jobs?api_key=***"


@pytest.mark.parametrize(
    ("crash", "message"),
    [("raise RuntimeError('with hunter2-of-ours')", "the process crashes"), (IN_A_THREAD, "the thread one crashed")],
)
def test_a_crash_is_logged_without_secrets(crash: str, message: str) -> None:
    code = (
        "from config.logging import *; from config.redaction import Redaction\n"
        "configure_logging('INFO', process='x', redaction=Redaction(['hunter2-of-ours'])); log_crashes()\n"
    )

    done = subprocess.run([sys.executable, "-c", code + crash], capture_output=True, text=True, check=False)

    line = json.loads(done.stderr)
    assert line["message"] == message
    assert "RuntimeError: with ***" in line["error"]
