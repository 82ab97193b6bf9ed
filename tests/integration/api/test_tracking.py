"""Tracking services in submitted documents: sealed tokens, and refusals with the field and the way out."""

from pathlib import Path
from typing import Any

import pytest

from app.models import Job, Sweep
from tests.builders.factories import make_document
from tests.builders.sweeps import make_sweep_document
from tests.systems.apps import Api

MLFLOW = {"kind": "mlflow", "url": "https://mlflow.example"}


def test_token_is_sealed_and_never_shown(api: Api) -> None:
    job_id = api.submit(tracking=[{**MLFLOW, "experiment": "support", "token": "t0ken-canary"}])

    answer = api.call("GET", f"/v1/jobs/{job_id}").get_data(as_text=True)

    assert "t0ken-canary" not in answer
    assert api.get(f"/v1/jobs/{job_id}")["tracking"] == [{**MLFLOW, "experiment": "support", "token": "***"}]
    with api.db.read() as session:
        sealed = session.get_one(Job, job_id).sealed_secrets
    assert "t0ken-canary" not in sealed
    assert api.app.extensions["trainyard"].plane.box.open(sealed) == {"tracking.0.token": "t0ken-canary"}


def test_retried_job_keeps_its_token(api: Api) -> None:
    job_id = api.submit(tracking=[{**MLFLOW, "token": "t0ken-canary"}])
    api.post(f"/v1/jobs/{job_id}/cancel", {})

    answer = api.post(f"/v1/jobs/{job_id}/retry", {})

    assert answer.status_code == 201, answer.get_data(as_text=True)
    with api.db.read() as session:
        sealed = session.get_one(Job, answer.get_json()["data"]["job_id"]).sealed_secrets
    assert api.app.extensions["trainyard"].plane.box.open(sealed) == {"tracking.0.token": "t0ken-canary"}


def test_kind_that_is_not_served_is_refused_whatever_else_it_names(sqlite_api: Api) -> None:
    comet = {"kind": "comet", "project": "p", "workspace": "me", "api_key": "s3cret"}

    answer = sqlite_api.post("/v1/jobs", make_document(tracking=[comet]))

    problem = sqlite_api.problem(answer, 400)
    assert problem["details"][0]["field"] == "tracking.0.kind"
    assert "known: mlflow, trackio, wandb" in problem["message"]
    assert "s3cret" not in answer.get_data(as_text=True)


def test_private_server_is_refused(sqlite_api: Api) -> None:
    document = make_document(tracking=[{**MLFLOW, "url": "http://127.0.0.1:5000"}])

    problem = sqlite_api.problem(sqlite_api.post("/v1/jobs", document), 400)

    assert problem["details"][0]["field"] == "tracking.0.url"
    assert "TRAINYARD_TRACKING_ALLOW" in problem["message"]


def test_more_services_than_four_are_refused(sqlite_api: Api) -> None:
    document = make_document(tracking=[{**MLFLOW, "experiment": str(number)} for number in range(5)])

    problem = sqlite_api.problem(sqlite_api.post("/v1/jobs", document), 422)

    assert problem["details"][0]["field"] == "tracking"


KEY = "stored-" + "k" * 40


def store_key(api: Api, project: str = "default", **files: str) -> None:
    folder: Path = api.folder / "data" / "secrets" / project / "wandb"
    folder.mkdir(parents=True)
    for name, text in {"api_key": KEY, **files}.items():
        (folder / name).write_text(text + "\n")


def opened(api: Api, sealed: str) -> Any:
    return api.app.extensions["trainyard"].plane.box.open(sealed)


def test_project_of_wandb_alone_takes_the_key_that_is_stored_for_the_project(api: Api) -> None:
    store_key(api, base_url="https://wandb.example")

    job_id = api.submit(tracking=[{"kind": "wandb", "experiment": "docs"}])

    shown = {"kind": "wandb", "experiment": "docs", "token": "***", "url": "https://wandb.example"}
    assert api.get(f"/v1/jobs/{job_id}")["tracking"] == [shown]
    with api.db.read() as session:
        sealed = session.get_one(Job, job_id).sealed_secrets
    assert opened(api, sealed) == {"tracking.0.token": KEY}


@pytest.mark.parametrize("url", [{"url": "https://thief.example"}, {}])
def test_stored_key_goes_neither_to_another_server_nor_to_another_project(sqlite_api: Api, url: dict[str, str]) -> None:
    store_key(sqlite_api, "default" if url else "other")
    document = make_document(tracking=[{"kind": "wandb", **url}])

    problem = sqlite_api.problem(sqlite_api.post("/v1/jobs", document), 400)

    assert problem["details"][0]["field"] == "tracking.0.token"
    assert "default/wandb/api_key below TRAINYARD_SECURITY_SECRETS_DIR" in problem["message"]
    assert KEY not in str(problem)


@pytest.mark.parametrize("name", ["api_key", "base_url"])
@pytest.mark.parametrize("leads_to", ["nowhere", "."])  # a link that dangles, and one to what is no file
def test_stored_file_that_cannot_be_read_is_not_taken_for_a_missing_one(
    sqlite_api: Api, name: str, leads_to: str
) -> None:
    store_key(sqlite_api, base_url="https://wandb.example")
    path = sqlite_api.folder / "data" / "secrets" / "default" / "wandb" / name
    path.unlink()
    path.symlink_to(leads_to)

    answer = sqlite_api.post("/v1/jobs", make_document(tracking=[{"kind": "wandb"}]))

    problem = sqlite_api.problem(answer, 400)
    assert f"the secret file default/wandb/{name} below TRAINYARD_SECURITY_SECRETS_DIR" in problem["message"]


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("api_key", "short", "the whole key"),
        ("api_key", "", "needs token"),
        ("base_url", "https://wandb.ai", "does not take this address"),
        ("base_url", "http://wandb.example", "use https"),
        ("base_url", "", "needs url"),
    ],
)
def test_stored_file_that_cannot_be_used_is_named(sqlite_api: Api, name: str, text: str, says: str) -> None:
    store_key(sqlite_api, **{"base_url": "https://wandb.example", name: text})

    problem = sqlite_api.problem(sqlite_api.post("/v1/jobs", make_document(tracking=[{"kind": "wandb"}])), 400)

    assert problem["details"][0]["field"] == "tracking.0.token"
    assert f"default/wandb/{name} below TRAINYARD_SECURITY_SECRETS_DIR" in problem["message"]
    assert says in problem["message"]


def test_trials_of_a_sweep_have_the_stored_key(api: Api) -> None:
    store_key(api)
    job = {**make_sweep_document()["job"], "tracking": [{"kind": "wandb"}]}

    sweep_id = api.data(api.post("/v1/sweeps", make_sweep_document(job=job)), 201)["sweep_id"]

    with api.db.read() as session:
        sweep = session.get_one(Sweep, sweep_id)
    assert opened(api, sweep.sealed_secrets) == {"tracking.0.token": KEY}
    assert sweep.base["tracking"] == [{"kind": "wandb", "token": "***"}]
    assert KEY not in str(api.get(f"/v1/sweeps/{sweep_id}"))


def test_offline_run_reaches_no_server(sqlite_api: Api) -> None:
    offline = {"kind": "wandb", "mode": "offline", "experiment": "docs", "run_name": "first", "tags": ["a"]}

    job_id = sqlite_api.submit(tracking=[offline])

    assert sqlite_api.get(f"/v1/jobs/{job_id}")["tracking"] == [offline]
    mistake = make_document(tracking=[{"kind": "wandb", "mode": "ofline"}])
    details = sqlite_api.problem(sqlite_api.post("/v1/jobs", mistake), 422)["details"]
    assert (details[0]["field"], "did you mean offline" in details[0]["message"]) == ("tracking.0.mode", True)
