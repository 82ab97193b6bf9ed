"""ModelArts' TensorBoard of a training job."""

from pathlib import Path
from typing import Any

from werkzeug.test import TestResponse

from app.database.engine import Database
from app.services.telemetry import tensorboards
from tests.systems.apps import BOARDS, Api

BASE = "/v2/default"


JOBS = f"{BASE}/training-jobs"


ALGORITHM = {"code_dir": "/team/src/", "boot_file": "/team/src/train.py", "parameters": [{"name": "lr", "value": "1"}]}


BODY = {"kind": "job", "metadata": {"name": "minist", "description": "digits"}, "algorithm": ALGORITHM}


def said(answer: TestResponse, status: int = 200) -> Any:
    assert answer.status_code == status, answer.text
    return answer.json


def created(api: Api, name: str = "minist", **changes: Any) -> str:
    return str(said(api.post(JOBS, {**BODY, "metadata": {"name": name}, **changes}), 201)["metadata"]["id"])


def test_tensorboard_is_returned_on_request(api: Api) -> None:
    wanted = {"metadata": {"name": "seen", "annotations": {"tensorboard/enable": "true"}}}
    made = said(api.post(JOBS, {**BODY, **wanted}), 201)
    silent = said(api.call("GET", f"{JOBS}/{created(api)}"))

    board = made["endpoints"]["tensorboard"]
    native = f"job-{made['metadata']['id']}"
    assert board["url"] == f"{BOARDS}/{native}/"
    assert tensorboards.job_of(api.app.extensions["trainyard"].settings, board["token"]) == (native, "seen")
    assert silent["endpoints"] == {}
    events = api.get(f"/v1/jobs/{native}/events")["events"]
    assert [event for event in events if event["reason"] == "NOT_ACTED_ON"] == []


def test_tensorboard_without_a_server_is_a_warning(database: Database, tmp_path: Path) -> None:
    api = Api(database, tmp_path, TRAINYARD_TENSORBOARD_URL="")
    wanted = {"metadata": {"name": "seen", "annotations": {"tensorboard/enable": "true"}}}
    made = said(api.post(JOBS, {**BODY, **wanted}), 201)

    events = api.get(f"/v1/jobs/job-{made['metadata']['id']}/events")["events"]

    assert made["endpoints"] == {}
    assert [event["data"]["fields"] for event in events if event["reason"] == "NOT_ACTED_ON"] == [
        ["metadata.annotations.tensorboard/enable"]
    ]
    assert "trainyard tensorboard" in api.call("GET", f"/v1/jobs/job-{made['metadata']['id']}/tensorboard").text
