"""Tracking services in submitted documents: sealed tokens, and refusals with the field and the way out."""

from app.models import Job
from tests.builders.factories import make_document
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
    trackio = {"kind": "trackio", "project": "p", "space": "me/p", "write_token": "s3cret"}

    answer = sqlite_api.post("/v1/jobs", make_document(tracking=[trackio]))

    problem = sqlite_api.problem(answer, 400)
    assert problem["details"][0]["field"] == "tracking.0.kind"
    assert "use another: mlflow, wandb" in problem["message"]
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
