"""Jobs that are named as models by a handle, on a real server."""

from collections.abc import Iterator

import pytest

from app.domain.lifecycle.states import JobState
from app.models import Artifact
from tests.builders.factories import make_document, make_job
from tests.systems.apps import Api
from tests.systems.commands import run, run_json
from tests.systems.served import serving


@pytest.fixture(autouse=True)
def _served(api: Api, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with serving(api) as served:
        monkeypatch.setenv("TRAINYARD_URL", served.url)
        monkeypatch.setenv("TRAINYARD_API_KEY", api.key)
        yield


def completed(api: Api, name: str) -> str:
    """A job that made a model."""
    with api.db.write() as session:
        job = make_job(session, document=make_document(name=name), state=JobState.COMPLETED)
        for path in ("config.json", "model.safetensors"):
            session.add(Artifact(job_id=job.id, path=path, size_bytes=1, sha256="0" * 64))
        return str(job.id)


def test_evaluation_and_service_of_a_job_by_its_name_and_the_end_of_its_id(api: Api) -> None:
    job_id = completed(api, "sft")

    created = run_json("eval", "run", "job:sft", "-b", "perplexity:s3://data/val.jsonl")["evaluations"][0]
    served = run_json("serve", f"job:{job_id[-8:]}", "--name", "support", "--min", "0")

    assert run_json("eval", "show", created["evaluation_id"])["model"]["job_id"] == job_id
    assert served["model"]["job_id"] == job_id
    listed = run_json("eval", "list", "--job", "sft")["evaluations"]
    assert [each["evaluation_id"] for each in listed] == [created["evaluation_id"]]


def test_handle_of_several_jobs_or_of_none_starts_nothing(api: Api) -> None:
    completed(api, "twice")
    completed(api, "twice")

    ambiguous = run("serve", "job:twice", "--name", "support")
    missing = run("eval", "run", "job:nowhere", "-b", "perplexity:s3://data/val.jsonl")
    against = run("eval", "run", "acme/base", "-b", "perplexity:s3://data/val.jsonl", "--against", "job:nowhere")

    assert (ambiguous.exit_code, "'twice' stands for 2 jobs" in ambiguous.stderr) == (1, True)
    assert [(each.exit_code, "no job nowhere" in each.stderr) for each in (missing, against)] == [(1, True)] * 2
    assert run_json("services", "list")["services"] == []
    assert run_json("eval", "list")["evaluations"] == []
