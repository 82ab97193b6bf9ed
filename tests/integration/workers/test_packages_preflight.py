"""Packages of jobs are resolved by their index before a device is taken."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.domain.spec.model import JobDocument
from config.settings import load_settings
from tests.builders.factories import make_document
from tests.systems.package_index import Index, package_index
from workers.prepare.packages.interpreters import own_interpreter
from workers.prepare.packages.preflight import inspect_packages

MISSING = "nowhere-to-be-found"


@pytest.fixture
def index() -> Iterator[Index]:
    with package_index() as found:
        found.add("greeting", "1.2.3")
        found.add("trains", "1", needs=["torch>=1", "greeting"])
        found.add("wants", "1", needs=[MISSING])
        yield found


def asked_for(index: Index, requirements: list[str], **packages: Any) -> dict[str, Any]:
    """The document of a job."""
    return make_document(
        training_config={
            "framework": {"type": "CUSTOM", "custom_command": ["true"]},
            "packages": {"index_url": index.url, "requirements": requirements, **packages},
        }
    )


def report(
    directory: Path,
    index: Index,
    variables: dict[str, str] | None = None,
    settings: dict[str, str] | None = None,
    **packages: Any,
) -> dict[str, Any]:
    """``variables`` are the job's."""
    document = asked_for(index, **packages)
    environment = {"TRAINYARD_DATA_DIR": str(directory / "data"), "TRAINYARD_FETCH_ALLOW": "127.0.0.1"}
    found = load_settings({**environment, **(settings or {})})
    return inspect_packages(found, JobDocument.from_json(document), variables or {}, seconds=30)


def test_packages_that_the_index_has_pass_and_nothing_is_installed(tmp_path: Path, index: Index) -> None:
    asked = ["greeting==1.2.3", "trains"]

    assert report(tmp_path, index, requirements=asked) == {"packages": {"requirements": asked}}
    assert list((tmp_path / "data").rglob("*.py")) == []
    assert [path for path in index.asked if "torch" in path] == []  # that of the node


@pytest.mark.parametrize(
    ("requirement", "named"), [(f"{MISSING}==1.0", MISSING), ("greeting==9", "greeting"), ("wants", MISSING)]
)
def test_package_that_the_index_lacks_fails_the_job_and_is_named(
    tmp_path: Path, index: Index, requirement: str, named: str
) -> None:
    (error,) = report(tmp_path, index, requirements=[requirement])["errors"]

    assert error["error_type"] == "PACKAGES_FAILED"
    assert error["message"].startswith(f"training_config.packages: {named} can't be installed. uv says:")


@pytest.mark.long
def test_what_another_machine_may_see_in_another_way_is_left_to_the_node(tmp_path: Path, index: Index) -> None:
    own = own_interpreter().minor
    index.files["newer-1-cp27-cp27m-win32.whl"] = index.files["greeting-1.2.3-py3-none-any.whl"]

    for more in ({"requirements": ["newer"]}, {"requirements": ["greeting"], "python": "3.1"}):
        (why,) = report(tmp_path, index, **more)["left_out"]
        assert "this coordinator has not resolved the packages" in why
    assert report(tmp_path, index, requirements=["greeting"], python=own)["packages"]


@pytest.mark.long
def test_index_that_does_not_answer_or_is_private_here_is_left_to_the_node(tmp_path: Path, index: Index) -> None:
    private = report(tmp_path, index, settings={"TRAINYARD_FETCH_ALLOW": ""}, requirements=["greeting"])
    assert index.asked == []
    index.status = 500

    assert "left_out" in private
    assert "left_out" in report(tmp_path, index, requirements=["greeting"])


def test_login_of_the_job_is_tried(tmp_path: Path, index: Index) -> None:
    index.login = "me:secret-word"
    right = {"UV_INDEX_USERNAME": "me", "UV_INDEX_PASSWORD": "secret-word"}

    assert report(tmp_path, index, right, requirements=["greeting"])["packages"]
    (error,) = report(tmp_path, index, requirements=["greeting"])["errors"]
    assert "UV_INDEX_PASSWORD" in error["message"]


def test_coordinator_without_uv_leaves_them_to_the_node(
    tmp_path: Path, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.prepare.packages.preflight.find_uv", lambda: None)

    assert "left_out" in report(tmp_path, index, requirements=[MISSING])
    assert index.asked == []


@pytest.mark.long
def test_slow_index_holds_no_job_up(tmp_path: Path, index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.prepare.packages.preflight._SECONDS", 1.0)
    answer, may_answer = index.answer, threading.Event()

    def wait(*asked: str) -> tuple[int, bytes, str]:
        may_answer.wait(20)
        return answer(*asked)

    monkeypatch.setattr(index, "answer", wait)
    began = time.monotonic()
    try:
        found = report(tmp_path, index, requirements=["greeting"])
    finally:
        may_answer.set()

    assert "in time" in found["left_out"][0]
    assert time.monotonic() - began < 6


@pytest.mark.long
def test_coordinators_ask_by_their_preflight(tmp_path: Path, index: Index, sqlite_url: str) -> None:
    variables = {
        "TRAINYARD_DATA_DIR": str(tmp_path / "data"),
        "TRAINYARD_DATABASE_URL": sqlite_url,
        "TRAINYARD_FETCH_ALLOW": "127.0.0.1",
    }
    asked = {"project": "default", "job_id": "job-1", "spec": asked_for(index, ["wants"]), "sealed_secrets": ""}

    done = subprocess.run(
        [sys.executable, "-m", "workers.prepare.preflight", "--die-with", str(os.getpid())],
        input=json.dumps(asked),
        env={**os.environ, **variables},
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=True,
    )

    (error,) = json.loads(done.stdout)["errors"]
    assert f"{MISSING} can't be installed" in error["message"]
