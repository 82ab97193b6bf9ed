"""The application of API processes: native requests load nothing else, and all others are answered as ever."""

import importlib
import logging
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from pathlib import Path

import pytest
from flask import Flask
from werkzeug.test import Client

from app import native
from app.http.context import EXTENSION, Backend, dialect_of
from app.http.dialect import NATIVE
from app.late_application import RETRY_SECONDS, LateApplication
from config.settings import Settings
from tests.systems.apps import Api

# Prints after each request its status and how many modules of other vocabularies and the dashboard are loaded.
LOADED = """
import gc, sys
from werkzeug.test import Client
from app.late_application import from_environment
client = Client(from_environment())
for path in ("/health", "/v1/jobs", "/v1/nothing", "/v1/jobs", "/ui/login"):
    status = client.get(path).status_code
    print(path, status, sum(name.startswith(("app.compat.", "app.web.", "google.")) for name in sys.modules))
    if path == "/health":
        print(len(sys.modules))
        gc.collect()
        frozen = gc.get_freeze_count()
print(gc.get_freeze_count() <= frozen)
"""
MOST_MODULES = 1560  # with which a process of the API starts; 1 480 when this was written, 1 870 with everything


@pytest.fixture
def settings(sqlite_api: Api) -> Settings:
    given: Settings = sqlite_api.app.extensions[EXTENSION].settings
    return replace(given, web=replace(given.web, enabled=True))  # tests of the API leave the dashboard out


@pytest.fixture
def application(sqlite_api: Api, settings: Settings) -> LateApplication:
    backend: Backend = native.backend_of(settings, db=sqlite_api.db, dispatcher=sqlite_api.dispatcher)
    return LateApplication(settings, backend)


@pytest.mark.long
def test_native_requests_load_nothing_of_other_vocabularies(tmp_path: Path) -> None:
    environment = {"TRAINYARD_DATA_DIR": str(tmp_path), "TRAINYARD_BROKER_URL": "redis://127.0.0.1:1/0"}

    done = subprocess.run([sys.executable, "-c", LOADED], env=environment, capture_output=True, text=True, check=True)

    health, modules, jobs, nothing, again, dashboard, unfrozen = done.stdout.splitlines()
    assert (health, jobs) == ("/health 200 0", "/v1/jobs 401 0")
    assert int(modules) < MOST_MODULES
    assert nothing.startswith("/v1/nothing 404 ")
    assert again.startswith("/v1/jobs 401 ")
    assert dashboard.startswith("/ui/login 200 ")
    assert unfrozen == "True"  # or what other threads held at that moment would stay


def test_no_vocabulary_has_paths_among_the_native_ones(application: LateApplication) -> None:
    whole = application.application_for("/openai/v1/models")
    of_native = application.application_for("/v1/jobs")
    served = _routes(of_native)

    assert len(served) > 100
    for path, method in _routes(whole):
        assert (application.application_for(path) is of_native) == ((path, method) in served), (method, path)
    assert {dialect_of(whole, path) for path, _ in served} == {NATIVE}


def _routes(app: Flask) -> set[tuple[str, str]]:
    return {(rule.rule, method) for rule in app.url_map.iter_rules() for method in rule.methods or ()}


def test_both_describe_the_native_api_alike(application: LateApplication) -> None:
    whole = application.application_for("/openai/v1/models")

    late = Client(application).get("/v1/openapi.json").get_json()

    assert late == Client(whole).get("/v1/openapi.json").get_json()
    assert "/" not in late["paths"]


def test_slashes_before_a_native_path_load_nothing_else(application: LateApplication) -> None:
    of_native = application.application_for("/v1/jobs")

    assert application.application_for("//v1/jobs") is of_native
    assert Client(application).get("//v1/jobs").status_code == 404


def test_what_cannot_be_loaded_is_unavailable_and_tried_again_later(
    application: LateApplication, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    client, tries = Client(application), []

    def fail(name: str) -> None:
        tries.append(name)
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", fail)
    with caplog.at_level(logging.ERROR):
        answers = [client.get(path) for path in ("/ui/login", "/openai/v1/models")]
        now = time.monotonic()
        monkeypatch.setattr(time, "monotonic", lambda: now + RETRY_SECONDS)
        answers.append(client.get("/"))

    for answer in answers:
        assert answer.status_code == 503
        assert answer.headers["Retry-After"] == str(RETRY_SECONDS)
        assert answer.headers["X-Request-ID"] == answer.get_json()["meta"]["request_id"]
        assert answer.get_json()["error"]["code"] == "UNAVAILABLE"
        assert "restarts `trainyard up`" in answer.get_json()["error"]["message"]
    assert tries == ["app.factory"] * 2
    assert len([record for record in caplog.records if "could not be loaded" in record.message]) == 1
    assert client.get("/health").status_code == 200

    monkeypatch.undo()
    monkeypatch.setattr(time, "monotonic", lambda: now + 2 * RETRY_SECONDS)
    assert client.get("/ui/login").status_code == 200


def test_first_requests_at_once_make_one_application(application: LateApplication) -> None:
    with ThreadPoolExecutor(4) as pool:
        made = set(pool.map(application.application_for, ["/openai/v1/models", "/api/v1/workloads", "/", "/v2/x/y"]))

    assert len(made) == 1


def test_each_vocabulary_answers_in_its_own_form(application: LateApplication, sqlite_api: Api) -> None:
    client, key = Client(application), {"Authorization": f"Bearer {sqlite_api.key}"}

    assert client.get("/v1/jobs", headers=key).get_json()["status"] == "success"
    assert client.get("/openai/v1/models", headers=key).get_json()["object"] == "list"
    assert client.get("/apis/ome.io/v1beta1/nothing", headers=key).get_json()["kind"] == "Status"
    assert client.get("/v1/jobs/nothing", headers=key).get_json()["status"] == "error"


def test_requests_are_counted_together(application: LateApplication, sqlite_api: Api) -> None:
    client, key = Client(application), {"Authorization": f"Bearer {sqlite_api.key}"}
    client.get("/v1/jobs", headers=key)
    client.get("/openai/v1/models", headers=key)
    client.get("/v1/jobs", headers=key)

    said = client.get("/metrics", headers=key).get_data(as_text=True)

    assert 'trainyard_http_requests_total{method="GET",route="/v1/jobs",status="200"} 2.0' in said
    assert 'route="/openai/v1/models",status="200"} 1.0' in said


def test_slots_and_caches_are_shared(application: LateApplication) -> None:
    of_native = application.application_for("/v1/jobs").extensions[EXTENSION]
    whole = application.application_for("/ui/login").extensions[EXTENSION]

    for name in {field.name for field in fields(Backend)} - {"dialects"}:
        assert getattr(whole, name) is getattr(of_native, name), name
