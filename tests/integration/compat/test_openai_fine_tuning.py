"""OpenAI's fine-tuning jobs over HTTP: created, read, listed, followed and cancelled."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from openai.types.fine_tuning import FineTuningJob, FineTuningJobEvent
from openai.types.fine_tuning.jobs import FineTuningJobCheckpoint

from app.compat.openai.fine_tuning import lookup
from app.compat.openai.fine_tuning.from_native import id_of
from app.domain.ids import new_id
from app.domain.lifecycle.states import JobState
from app.http.context import EXTENSION
from app.models import Checkpoint, File, Metric, RegisteredModel
from app.models.base import utc_now
from app.services.files import result_files
from tests.builders.factories import make_job
from tests.systems.apps import Api

JOBS = "/v1/fine_tuning/jobs"


def add_file(api: Api, **changes: Any) -> str:
    values = {
        "id": new_id("file"),
        "project": "default",
        "created_by": "",
        "filename": "train.jsonl",
        "purpose": "fine-tune",
        "size_bytes": 10,
        "sha256": "0" * 64,
        "status": "processed",
        "records": 100,
        "shape": "messages",
        **changes,
    }
    with api.db.write() as session:
        session.add(File(**values))
    return str(values["id"])


def add_job(api: Api, foreign: Mapping[str, Any]) -> str:
    with api.db.write() as session:
        return make_job(session, foreign={"openai": dict(foreign)}).id


def add_measurements(api: Api, native_id: str) -> None:
    """A loss at steps 1 to 3, the last two at the same time, and two checkpoints."""
    now = utc_now() + timedelta(seconds=1)
    with api.db.write() as session:
        for step in (1, 2, 3):
            at = now + timedelta(seconds=min(step, 2))
            row = {"job_id": native_id, "step": step, "at": at, "attempt": 1, "special": None}
            session.add(Metric(**row, name="loss", value=float(step), seq=2 * step))
            session.add(Metric(**row, name="eval_loss", value=0.5, seq=2 * step + 1))
        for step in (2, 3):
            saved = {"job_id": native_id, "project": "default", "attempt": 1, "sha256": "", "uri": ""}
            session.add(Checkpoint(id=new_id("ckpt"), step=step, metrics={"loss": 1.0}, **saved))


def ids_of_pages(api: Api, path: str, limit: int) -> list[str]:
    found: list[str] = []
    more = True
    while more:
        after = f"&after={found[-1]}" if found else ""
        page = api.call("GET", f"{path}?limit={limit}{after}").json or {}
        found += [each["id"] for each in page["data"]]
        more = page["has_more"]
    return found


def assert_history(api: Api, job_id: str) -> None:
    """Events and checkpoints, newest first, and the same page by page."""
    events = (api.call("GET", f"{JOBS}/{job_id}/events").json or {})["data"]
    assert [FineTuningJobEvent.model_validate(each, strict=True).message for each in events][:2] == [
        "Step 3: training loss=3, validation loss=0.5",
        "Step 2: training loss=2, validation loss=0.5",
    ]
    assert ids_of_pages(api, f"{JOBS}/{job_id}/events", 1) == [each["id"] for each in events]
    checkpoints = (api.call("GET", f"{JOBS}/{job_id}/checkpoints").json or {})["data"]
    found = [FineTuningJobCheckpoint.model_validate(each, strict=True) for each in checkpoints]
    assert [each.step_number for each in found] == [3, 2]
    assert found[0].fine_tuned_model_checkpoint.startswith("ft:tiny:default:docs:")
    assert ids_of_pages(api, f"{JOBS}/{job_id}/checkpoints", 1) == [each.id for each in found]


def test_fine_tuning_job_is_created_followed_and_cancelled(sqlite_api: Api) -> None:
    api = sqlite_api
    file_id = add_file(api)
    with api.db.write() as session:
        session.add(RegisteredModel(name="tiny", kind="base", location="/srv/models/tiny", created_by=""))
    labels = {"team": "a", "long": "x" * 300}
    body: dict[str, Any] = {"model": "tiny", "training_file": file_id, "suffix": "docs", "metadata": labels}
    run: dict[str, Any] = {"project": "docs", "name": "first", "entity": "team", "tags": ["a"]}
    tracked = {**body, "integrations": [{"type": "wandb", "wandb": run}]}
    refused = (api.post(JOBS, tracked).json or {})["error"]
    assert (refused["param"], "default/wandb/api_key" in refused["message"]) == ("integrations.0", True)
    assert "trainyard.tracking" in refused["message"]
    (folder := api.folder / "data" / "secrets" / "default" / "wandb").mkdir(parents=True)
    (folder / "api_key").write_text("k" * 40)
    odd = {**tracked, "integrations": [{"type": "wandb", "wandb": {"project": "a/b"}}]}
    assert (api.post(JOBS, odd).json or {})["error"]["param"] == "integrations.0.wandb.project"
    body = tracked

    answer = api.post(JOBS, body)
    assert answer.status_code == 200, answer.text
    job = FineTuningJob.model_validate(answer.json, strict=True)
    assert (job.status, job.hyperparameters.n_epochs, job.training_file) == ("validating_files", 3, file_id)
    native_id = (answer.json or {})["trainyard"]["job_id"]
    shown = {
        "kind": "wandb",
        "experiment": "docs",
        "run_name": "first",
        "entity": "team",
        "tags": ["a"],
        "token": "***",
    }
    assert api.get(f"/v1/jobs/{native_id}")["tracking"] == [shown]
    assert [each.wandb.project for each in job.integrations or ()] == ["docs"]
    assert api.get(f"/v1/jobs/{native_id}")["data_config"]["sources"] == [{"path": file_id, "split": "train"}]
    other = (api.post("/openai/v1/fine_tuning/jobs", {"model": "tiny", "training_file": file_id}).json or {})["id"]
    add_measurements(api, native_id)

    read = FineTuningJob.model_validate(api.call("GET", f"{JOBS}/{job.id}").json, strict=True)
    assert read.metadata == body["metadata"]
    assert ids_of_pages(api, JOBS, 1) == [other, job.id]
    queries = {"[team]=a": [job.id], f"[long]={'x' * 300}": [job.id], "[team]=": [], "=null": [other]}
    for query, matching in queries.items():
        listed = api.call("GET", f"{JOBS}?metadata{query}").json or {}
        assert [each["id"] for each in listed["data"]] == matching, query

    assert_history(api, job.id)
    assert (api.post(f"{JOBS}/{job.id}/pause").json or {})["status"] == "paused"
    assert (api.post(f"{JOBS}/{job.id}/resume").json or {})["status"] == "queued"
    assert (api.post(f"{JOBS}/{job.id}/cancel").json or {})["status"] == "cancelled"
    again = api.post(f"{JOBS}/{job.id}/cancel")
    assert (again.status_code, (again.json or {})["error"]["code"]) == (409, "invalid_state")
    assert again.headers["X-Should-Retry"] == "false"


def test_list_says_that_it_has_more_where_it_stops_reading(sqlite_api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "MOST_READ", 2)
    made = [add_job(sqlite_api, foreign) for foreign in ({}, *[{"metadata": {"team": "a"}}] * 3)]

    first = sqlite_api.call("GET", f"{JOBS}?metadata=null").json or {}
    rest = sqlite_api.call("GET", f"{JOBS}?metadata=null&after={made[2]}").json or {}

    assert (first["data"], first["has_more"]) == ([], True)
    assert ([each["trainyard"]["job_id"] for each in rest["data"]], rest["has_more"]) == (made[:1], False)


@pytest.mark.both_databases
def test_command_that_is_sent_again_does_what_it_says(api: Api) -> None:
    """Whether its first try arrived or not, and whatever was answered to an equal one before."""
    with api.db.write() as session:
        session.add(RegisteredModel(name="tiny", kind="base", location="/srv/models/tiny", created_by=""))
    job = f"{JOBS}/{(api.post(JOBS, {'model': 'tiny', 'training_file': add_file(api)}).json or {})['id']}"
    again = {"x-stainless-retry-count": "1"}

    def replayed(command: str, **more: Any) -> tuple[str, bool]:
        answer = api.post(f"{job}/{command}", **more)
        assert answer.status_code == 200, answer.text
        return (answer.json or {})["status"], "Idempotency-Replayed" in answer.headers

    assert replayed("pause") == ("paused", False)
    assert replayed("resume") == ("queued", False)
    assert replayed("resume", headers=again) == ("queued", True)  # its answer was lost
    for _ in range(2):  # both were lost before they arrived
        assert replayed("pause", headers=again) == ("paused", False)
        assert (api.call("GET", job).json or {})["status"] == "paused"
        assert replayed("resume", headers=again) == ("queued", False)
    assert replayed("cancel") == ("cancelled", False)
    assert replayed("cancel", headers=again) == ("cancelled", True)


def test_result_file_has_the_metrics_of_each_step(sqlite_api: Api) -> None:
    api = sqlite_api
    storage = api.app.extensions[EXTENSION].plane.storage
    with api.db.write() as session:
        job_id = make_job(session, state=JobState.COMPLETED).id
        session.add(
            RegisteredModel(name=f"ft:tiny:default::{job_id[-8:]}", kind="fine_tune", job_id=job_id, created_by="")
        )
    add_measurements(api, job_id)

    for _ in range(2):  # the second one replaces the first
        result_files.write(api.db, storage, job_id)

    job = FineTuningJob.model_validate(api.call("GET", f"{JOBS}/{job_id}").json, strict=True)
    assert len(job.result_files) == 1
    assert job.fine_tuned_model == f"ft:tiny:default::{job_id[-8:]}"
    content = api.call("GET", f"/v1/files/{job.result_files[0]}/content")
    assert content.text.splitlines() == [
        "step,train_loss,train_accuracy,valid_loss,valid_mean_token_accuracy",
        "1,1.0,,0.5,",
        "2,2.0,,0.5,",
        "3,3.0,,0.5,",
    ]


def test_refusals_name_the_field_of_the_client(sqlite_api: Api) -> None:
    api = sqlite_api
    file_id, batch = add_file(api), add_file(api, purpose="batch", shape="batch")
    with api.db.write() as session:
        session.add(RegisteredModel(name="tiny", kind="base", location="/srv/models/tiny", created_by=""))
    good = {"model": "tiny", "training_file": file_id}
    refused: dict[str, tuple[dict[str, Any], int]] = {
        "model": ({"model": "unknown"}, 404),
        "training_file": ({"training_file": new_id("file")}, 404),
        "validation_file": ({"validation_file": batch}, 400),
        "hyperparameters.n_epochs": ({"hyperparameters": {"n_epochs": 0}}, 400),
        "trainyard.resource_config.gpu_count": ({"trainyard": {"resource_config": {"gpu_count": "2"}}}, 400),
        "after": ({}, 400),
    }

    for field, (changes, status) in refused.items():
        path = f"{JOBS}?after={new_id('ftjob')}"
        answer = api.call("GET", path) if field == "after" else api.post(JOBS, {**good, **changes})
        assert (answer.status_code, (answer.json or {})["error"]["param"]) == (status, field), answer.text
    unknown = new_id("ftjob")
    missing = api.call("GET", f"{JOBS}/{unknown}")
    assert (missing.status_code, (missing.json or {})["error"]["message"]) == (404, f"no fine-tuning job {unknown}")


def test_job_is_named_in_the_words_of_the_client(sqlite_api: Api) -> None:
    """In commands that come too late, and as a model, which is then one that has not ended, or none."""
    api = sqlite_api
    with api.db.write() as session:
        ended, waiting = (id_of(make_job(session, state=state).id) for state in (JobState.COMPLETED, JobState.QUEUED))
    words = {"cancel": "cancelled", "pause": "paused", "resume": "resumed"}

    for command, done in words.items():
        answer = api.post(f"{JOBS}/{ended}/{command}")
        said = (answer.json or {})["error"]["message"]
        assert (answer.status_code, said) == (409, f"{ended} is succeeded and can't be {done}")
    for model, status in ((waiting, 409), (new_id("ftjob"), 404)):
        answer = api.post(JOBS, {"model": model, "training_file": add_file(api)})
        assert (answer.status_code, (answer.json or {})["error"]["param"]) == (status, "model"), answer.text
