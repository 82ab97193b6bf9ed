"""What is found before a job may wait for devices, on both databases."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from app.database.engine import Database
from app.domain.lifecycle.events import EventType
from app.domain.lifecycle.states import JobState
from app.domain.spec.locations.paths import ReadingRules
from app.models import JobEvent
from app.services.preflight import admission
from tests.builders.admitting import admit
from tests.builders.factories import make_document
from tests.builders.shards import batch_document
from tests.builders.walks import job_of, make_job, make_node

pytestmark = pytest.mark.both_databases


@pytest.fixture
def rules(tmp_path: Path) -> ReadingRules:
    """One root, with a model and data in it."""
    root = tmp_path / "inputs"
    (root / "model").mkdir(parents=True)
    (root / "train.jsonl").write_text("{}\n")
    (tmp_path / "files").mkdir()
    return ReadingRules(roots=(str(tmp_path / "files"), str(root)), real_path=os.path.realpath)


def document(rules: ReadingRules, *, model: str = "model", data: str = "train.jsonl", **changes: Any) -> dict[str, Any]:
    root = rules.roots[1]
    return make_document(
        training_config={"base_model": {"model_id": f"{root}/{model}"}},
        data_config={"sources": [{"path": f"{root}/{data}", "format": "jsonl"}]},
        **changes,
    )


def admitted(database: Database, rules: ReadingRules, spec: dict[str, Any]) -> tuple[JobState, str | None, str | None]:
    job_id = make_job(database, document=spec)
    assert admit(database, job_id, rules)
    job = job_of(database, job_id)
    return job.state, job.error_type, job.error_message


def test_a_job_whose_files_are_there_is_queued(database: Database, rules: ReadingRules) -> None:
    assert admitted(database, rules, document(rules)) == (JobState.QUEUED, None, None)


def test_requests_of_openai_are_left_to_the_node(database: Database, rules: ReadingRules) -> None:
    trained = document(rules)
    model = {"base_model": trained["training_config"]["base_model"]}
    asking = {"task": {"type": "requests", "endpoint": "/v1/embeddings"}}
    spec = batch_document(data_config=trained["data_config"], training_config=model, inference=asking)
    job_id = make_job(database, document=spec)
    settings = admission.InspectionSettings(rows=10, waiting=10)

    assert admit(database, job_id, rules, inspection=settings)

    assert job_of(database, job_id).state is JobState.QUEUED
    with database.read() as session:
        (event,) = session.scalars(select(JobEvent).where(JobEvent.type == EventType.PREFLIGHT))
    assert event.message.startswith("left to the node: requests are checked when they are uploaded")


def test_code_of_a_benchmark_that_is_not_there_fails_the_evaluation(database: Database, rules: ReadingRules) -> None:
    trained, missing = document(rules), f"{rules.roots[1]}/metric.py"
    model = {"base_model": trained["training_config"]["base_model"]}
    measured = {"benchmarks": [{"name": f"custom:{missing}", "dataset": 0}]}
    spec = batch_document(data_config=trained["data_config"], training_config=model, inference=measured, benchmarks=1)

    state, cause, message = admitted(database, rules, spec)

    assert (state, cause) == (JobState.FAILED, "INVALID_CONFIG")
    assert f"benchmark's file {missing} does not exist" in (message or "")


@pytest.mark.parametrize(
    ("missing", "cause"), [({"model": "gone"}, "MODEL_NOT_FOUND"), ({"data": "gone.jsonl"}, "DATA_NOT_FOUND")]
)
def test_a_missing_file_fails_the_job_before_it_takes_a_device(
    database: Database, rules: ReadingRules, missing: dict[str, str], cause: str
) -> None:
    state, error_type, message = admitted(database, rules, document(rules, **missing))

    assert (state, error_type) == (JobState.FAILED, cause)
    assert "gone" in (message or "")


def claim_mounted(database: Database, rules: ReadingRules, **mount: Any) -> tuple[JobState, str | None]:
    spec = make_document(resource_config={"mounts": [{"path": "/x", "type": "claim", **mount}]})
    spec["training_config"]["base_model"]["model_id"] = f"{rules.roots[1]}/model"
    spec["data_config"]["sources"] = []
    state, _, message = admitted(database, rules, spec)
    return state, message


def test_a_missing_claim_fails_the_job_where_those_of_its_project_are_seen(
    database: Database, rules: ReadingRules, tmp_path: Path
) -> None:
    claims = tmp_path / "claims"
    (claims / "other" / "theirs").mkdir(parents=True)
    seeing = replace(rules, claims_dir=str(claims), shared_claims=("all",))
    assert claim_mounted(database, seeing, claim="scratch")[0] is JobState.QUEUED  # a node may have it
    (claims / "default" / "mine").mkdir(parents=True)

    for missing in ("scratch", "theirs"):
        state, message = claim_mounted(database, seeing, claim=missing)
        assert state is JobState.FAILED
        assert f"mounts.0.claim: the project default has no volume claim {missing}; set create" in (message or "")
    for there in ({"claim": "mine"}, {"claim": "all", "read_only": True}, {"claim": "scratch", "create": True}):
        assert claim_mounted(database, seeing, **there)[0] is JobState.QUEUED
    own = replace(seeing, data_dir=str(tmp_path))
    assert claim_mounted(database, own, claim="scratch")[0] is JobState.QUEUED


def test_nothing_is_said_about_directories_this_machine_does_not_have(database: Database, rules: ReadingRules) -> None:
    elsewhere = ReadingRules(roots=(*rules.roots, "/srv/not-mounted-here"))

    assert admitted(database, elsewhere, document(rules, model="gone"))[0] is JobState.QUEUED


def test_a_request_that_no_node_could_ever_hold_fails(database: Database, rules: ReadingRules) -> None:
    make_node(database)

    state, error_type, message = admitted(database, rules, document(rules, resource_config={"gpu_count": 64}))

    assert (state, error_type) == (JobState.FAILED, "INVALID_CONFIG")
    assert "gpu_count that would fit is 2" in (message or "")


def test_a_second_message_admits_nothing(database: Database, rules: ReadingRules) -> None:
    job_id = make_job(database, document=document(rules))

    assert [admit(database, job_id, rules) for _ in range(2)] == [True, False]
    assert not admit(database, "job-unknown", rules)


@pytest.mark.parametrize(
    ("framework", "message"),
    [
        (
            {"custom_script_path": "code/train.py", "custom_code_dir": "code"},
            "code directory {root}/code has no req.txt",
        ),
        ({"custom_script_path": "code"}, "custom script {root}/code is a directory; name the file to run"),
        ({"custom_script_path": "code/train.py", "custom_code_dir": "train.jsonl"}, "train.jsonl is not a directory"),
    ],
    ids=["requirements", "script", "code"],
)
def test_a_program_that_can_not_run_fails_the_job_before_it_takes_a_device(
    database: Database, rules: ReadingRules, framework: dict[str, str], message: str
) -> None:
    root = rules.roots[1]
    (Path(root) / "code").mkdir()
    (Path(root) / "code" / "train.py").write_text("")
    placed = {name: f"{root}/{path}" for name, path in framework.items()}
    training = {
        "framework": {"type": "CUSTOM", **placed},
        "packages": {"requirements_file": "req.txt"},
        "base_model": {"model_id": "none"},
    }
    spec = make_document(training_config=training, data_config={"sources": []})

    state, error_type, said = admitted(database, rules, spec)

    assert (state, error_type) == (JobState.FAILED, "INVALID_CONFIG")
    assert message.format(root=root) in (said or "")
