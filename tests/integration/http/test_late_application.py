"""The application of API processes: native requests load nothing else, and all others are answered as ever."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from werkzeug.test import Client

from app import native
from app.http.context import EXTENSION, Backend, dialect_of
from app.http.dialect import NATIVE
from app.late_application import LateApplication
from config.settings import Settings
from tests.systems.apps import Api

# Prints after each request its status and how many modules of other vocabularies and the dashboard are loaded.
LOADED = """
import sys
from werkzeug.test import Client
from app.late_application import from_environment
client = Client(from_environment())
for path in ("/health", "/v1/jobs", "/v1/nothing", "/v1/jobs", "/ui/login"):
    status = client.get(path).status_code
    print(path, status, sum(name.startswith(("app.compat.", "app.web.", "google.")) for name in sys.modules))
    if path == "/health":
        print(len(sys.modules))
"""
MOST_MODULES = 1560  # with which a process of the API starts; 1 480 when this was written, 1 870 with everything


@pytest.fixture
def settings(sqlite_api: Api) -> Settings:
    given: Settings = sqlite_api.app.extensions[EXTENSION].settings
    return given


@pytest.fixture
def application(sqlite_api: Api, settings: Settings) -> LateApplication:
    backend: Backend = native.backend_of(settings, db=sqlite_api.db, dispatcher=sqlite_api.dispatcher)
    return LateApplication(settings, backend)


@pytest.mark.long
def test_native_requests_load_nothing_of_other_vocabularies(tmp_path: Path) -> None:
    environment = {"TRAINYARD_DATA_DIR": str(tmp_path), "TRAINYARD_BROKER_URL": "redis://127.0.0.1:1/0"}

    done = subprocess.run([sys.executable, "-c", LOADED], env=environment, capture_output=True, text=True, check=True)

    health, modules, jobs, nothing, again, dashboard = done.stdout.splitlines()
    assert (health, jobs) == ("/health 200 0", "/v1/jobs 401 0")
    assert int(modules) < MOST_MODULES
    assert nothing.startswith("/v1/nothing 404 ")
    assert again.startswith("/v1/jobs 401 ")
    assert dashboard.startswith("/ui/login 200 ")


def test_no_vocabulary_has_paths_among_the_native_ones(application: LateApplication) -> None:
    whole = application.application_for("/openai/v1/models")
    of_native = application.application_for("/v1/jobs")
    served = {rule.rule for rule in of_native.url_map.iter_rules()}

    assert len(served) > 100
    for rule in whole.url_map.iter_rules():
        assert (application.application_for(rule.rule) is of_native) == (rule.rule in served), rule.rule
    assert {dialect_of(whole, path) for path in served} == {NATIVE}


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

    for name in ("plane", "streams", "answers", "bodies", "viewers", "limits", "key_cache", "denials", "shared"):
        assert getattr(whole, name) is getattr(of_native, name), name
