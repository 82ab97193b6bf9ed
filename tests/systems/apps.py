"""The API on a test's database, and a client that speaks its envelope."""

from collections import defaultdict
from pathlib import Path
from typing import Any

from cryptography.fernet import Fernet
from flask import Flask
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from app.api import prometheus
from app.database.engine import Database
from app.factory import backend_of, create_app
from app.http.context import EXTENSION
from app.security.permissions import Role
from app.security.secrets import SecretBox
from app.services.access import api_keys
from config.api import ApiSettings
from config.metrics_directory import inherited_multiprocess_directory
from config.settings import Settings, load_settings
from config.web import WebSettings
from tests.builders.factories import make_document, make_project, make_queue
from tests.doubles.fakes import FakeDispatcher

SECRET_KEY = Fernet.generate_key().decode()
BOARDS = "https://trainyard.example.com/tensorboard"


# Applications whose tests have ended, by the settings that their routes depend on.
_spare: dict[tuple[ApiSettings, WebSettings], list[Flask]] = defaultdict(list)


def _application(settings: Settings, database: Database, dispatcher: FakeDispatcher) -> Flask:
    """A new one, or the routes of an old one on a backend and figures of its own: routes take 25 ms to make."""
    if not _spare[settings.api, settings.web]:
        return create_app(settings, db=database, dispatcher=dispatcher)
    app = _spare[settings.api, settings.web].pop()
    app.extensions[EXTENSION] = backend_of(settings, db=database, dispatcher=dispatcher)
    app.extensions[prometheus.EXTENSION] = prometheus.RequestMetrics(inherited_multiprocess_directory())
    return app


class Api:
    """One application with a project, a queue, and a super admin as the default caller."""

    def __init__(self, database: Database, folder: Path, **settings: str) -> None:
        self.db, self.folder, self.dispatcher = database, folder, FakeDispatcher()
        self.inputs = folder / "inputs"
        self.inputs.mkdir()
        environment = {
            "TRAINYARD_DATA_DIR": str(folder / "data"),
            "TRAINYARD_SECURITY_SECRET_KEY": SECRET_KEY,
            "TRAINYARD_STORAGE_ROOTS": f"{self.inputs}:/srv",
            "TRAINYARD_TENSORBOARD_URL": BOARDS,
            "TRAINYARD_WEB_ENABLED": "false",  # tests that walk over all routes are of the API
            "TRAINYARD_DATABASE_URL": str(database.engine.url.render_as_string(hide_password=False)),
            **settings,
        }
        self.app = _application(load_settings(environment), database, self.dispatcher)
        self.client: FlaskClient = self.app.test_client()
        with database.write() as session:
            make_project(session)
            make_queue(session)
        self.key = self.make_key(Role.SUPER_ADMIN, None)

    def close(self) -> None:
        """Its application may serve another test."""
        settings: Settings = self.app.extensions[EXTENSION].settings
        _spare[settings.api, settings.web].append(self.app)

    def make_key(self, role: Role, project: str | None = "default", **more: Any) -> str:
        if project is not None:
            with self.db.write() as session:
                make_project(session, project)
        return api_keys.create(self.db, SecretBox(SECRET_KEY), role=role, project=project, **more).key

    def call(self, method: str, path: str, *, key: str | None = None, **request: Any) -> TestResponse:
        headers = {"Authorization": f"Bearer {key or self.key}", **request.pop("headers", {})}
        return self.client.open(path, method=method, headers=headers, **request)

    def get(self, path: str, **request: Any) -> Any:
        """The data of a successful answer."""
        return self.data(self.call("GET", path, **request))

    def post(self, path: str, body: Any = None, **request: Any) -> TestResponse:
        return self.call("POST", path, json=body, **request) if body is not None else self.call("POST", path, **request)

    def submit(self, *, key: str | None = None, **changes: Any) -> str:
        """The id of a new job."""
        answer = self.post("/v1/jobs", make_document(**changes), key=key)
        return str(self.data(answer, 201)["job_id"])

    def data(self, answer: TestResponse, status: int = 200) -> Any:
        assert answer.status_code == status, answer.get_data(as_text=True)
        assert answer.json is not None
        assert answer.json["status"] == "success"
        return answer.json["data"]

    def problem(self, answer: TestResponse, status: int) -> dict[str, Any]:
        assert answer.status_code == status, answer.get_data(as_text=True)
        assert answer.json is not None
        assert answer.json["status"] == "error"
        assert answer.json["meta"]["request_id"].startswith("req_")
        error: dict[str, Any] = answer.json["error"]
        return error
