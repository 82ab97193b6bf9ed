"""The user's own tokens: they come in headers, are sealed with the job, and are seen nowhere else."""

import logging
from pathlib import Path
from typing import Any

import pytest

from app.domain.spec.user_tokens import HEADERS
from app.models import Job
from config.environment import TOKEN_VARIABLES
from tests.builders.factories import make_document
from tests.systems.apps import Api
from trainyard.client import TOKEN_HEADERS

ON_DRIVE = {"sources": [{"path": "scaidrive://team/train.jsonl"}]}
TOKENS = {"X-ScaiDrive-Token": "drive-canary", "X-ScaiAtlas-Token": "atlas-canary", "X-User-Token": "user.canary=="}


def sealed(api: Api, job_id: str) -> Any:
    with api.db.read() as session:
        row = session.get_one(Job, job_id)
        return api.app.extensions["trainyard"].plane.box.open(row.sealed_secrets) if row.sealed_secrets else {}


def test_tokens_are_sealed_with_the_job_and_shown_nowhere(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        headers = {**TOKENS, "Idempotency-Key": "once"}
        answer = api.post("/v1/jobs", make_document(data_config=ON_DRIVE), headers=headers)
        again = api.post("/v1/jobs", make_document(data_config=ON_DRIVE), headers={"Idempotency-Key": "once"})

    job_id = api.data(answer, 201)["job_id"]
    assert sealed(api, job_id) == {
        "forwarded.scaidrive": "drive-canary",
        "forwarded.scaiatlas": "atlas-canary",
        "forwarded.user": "user.canary==",
    }
    assert api.data(again, 201)["job_id"] == job_id
    shown = [
        api.call("GET", path).get_data(as_text=True) for path in (f"/v1/jobs/{job_id}", f"/v1/jobs/{job_id}/events")
    ]
    seen = [answer.get_data(as_text=True), again.get_data(as_text=True), *shown, caplog.text]
    assert [text for text in seen if "canary" in text] == []


def test_tokens_lie_in_no_file_in_clear(sqlite_api: Api, tmp_path: Path) -> None:
    sqlite_api.post("/v1/jobs", make_document(data_config=ON_DRIVE), headers=TOKENS)

    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.name.startswith("trainyard.db") for path in files)
    assert [path for path in files if b"canary" in path.read_bytes()] == []


def test_a_fault_does_not_log_them(sqlite_api: Api, caplog: pytest.LogCaptureFixture) -> None:
    headers = {**TOKENS, "Idempotency-Key": "once"}
    with sqlite_api.db.engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE job_label")

    with caplog.at_level(logging.DEBUG):
        answer = sqlite_api.post("/v1/jobs", make_document(data_config=ON_DRIVE, labels={"a": "b"}), headers=headers)

    assert answer.status_code >= 500
    assert "canary" not in caplog.text + answer.get_data(as_text=True)


def test_the_same_under_the_other_base(sqlite_api: Api) -> None:
    answer = sqlite_api.post(
        "/v1/modules/scaimind/jobs", make_document(data_config=ON_DRIVE), headers={"X-User-Token": "t"}
    )

    assert sealed(sqlite_api, sqlite_api.data(answer, 201)["job_id"]) == {"forwarded.user": "t"}


def test_a_users_place_without_a_token_is_refused_and_says_which_header(sqlite_api: Api) -> None:
    answer = sqlite_api.post("/v1/jobs", make_document(data_config=ON_DRIVE), headers={"X-ScaiAtlas-Token": "t"})

    problem = sqlite_api.problem(answer, 400)
    assert problem["details"][0]["field"] == "data_config.sources.0.path"
    assert "X-ScaiDrive-Token" in problem["message"]


MODEL_ON_DRIVE = {"base_model": {"model_id": "scaidrive://team/models/x/", "source": "scaidrive"}}
TOKENIZER_ON_DRIVE = {"base_model": {"model_id": "org/model", "tokenizer_id": "scaidrive://team/tokenizer"}}
JUDGE_ON_DRIVE = {
    "training_type": "RLHF",
    "hyperparameters": {"algorithm": "ppo", "reward_model_id": "scaidrive://team/judge"},
}


@pytest.mark.parametrize(
    ("training", "field"),
    [
        (MODEL_ON_DRIVE, "base_model.model_id"),
        (TOKENIZER_ON_DRIVE, "base_model.tokenizer_id"),
        (JUDGE_ON_DRIVE, "hyperparameters.reward_model_id"),
    ],
)
def test_models_of_a_users_place_are_taken_with_a_token(sqlite_api: Api, training: Any, field: str) -> None:
    document = make_document(training_config=training)

    with_token = sqlite_api.post("/v1/jobs", document, headers={"X-ScaiDrive-Token": "t"})
    without = sqlite_api.problem(sqlite_api.post("/v1/jobs", document), 400)

    assert sealed(sqlite_api, sqlite_api.data(with_token, 201)["job_id"]) == {"forwarded.scaidrive": "t"}
    assert without["details"][0]["field"] == f"training_config.{field}"
    assert "X-ScaiDrive-Token" in without["message"]


@pytest.mark.parametrize("header", TOKENS)
@pytest.mark.parametrize("token", ["a b", "Bearer abc", "a,b", "x" * 7681, "é", "a:b", '"quoted"'])
def test_malformed_tokens_are_refused_and_not_repeated(sqlite_api: Api, header: str, token: str) -> None:
    answer = sqlite_api.post("/v1/jobs", make_document(), headers={header: token.encode().decode("latin-1")})

    problem = sqlite_api.problem(answer, 400)
    assert problem["details"][0]["field"] == header
    assert token not in problem["message"]


def test_an_empty_header_is_none(sqlite_api: Api) -> None:
    answer = sqlite_api.post("/v1/jobs", make_document(), headers={"X-User-Token": ""})

    assert sealed(sqlite_api, sqlite_api.data(answer, 201)["job_id"]) == {}


def test_the_client_sends_them_in_these_headers() -> None:
    assert {header: key for key, header in TOKEN_HEADERS.items()} == HEADERS
    assert set(TOKEN_VARIABLES.values()) == set(HEADERS.values())


def test_the_description_names_the_headers(sqlite_api: Api) -> None:
    submit = sqlite_api.call("GET", "/v1/openapi.json").json["paths"]["/v1/jobs"]["post"]  # type: ignore[index]

    described = {each["name"]: each.get("description", "") for each in submit["parameters"] if each["in"] == "header"}
    assert described.keys() == {*TOKENS, "Idempotency-Key", "X-Project"}
    assert all("never shown or logged" in described[name] for name in TOKENS)
