"""`trainyard jobs compare`, on a real database of each kind: jobs of every project, and the answers of the API."""

import pytest

from app.database.engine import Database
from tests.builders.factories import make_document, make_job
from tests.systems.commands import run_local, run_local_json


def stored(db: Database, project: str, learning_rate: str) -> str:
    document = make_document(training_config={"hyperparameters": {"learning_rate": learning_rate}})
    with db.write() as session:
        return str(make_job(session, document=document, project=project, latest_metrics={"loss": 2.0}).id)


@pytest.mark.long
@pytest.mark.both_databases
def test_jobs_of_every_project_are_compared(db: Database) -> None:
    job_ids = stored(db, "default", "1e-3"), stored(db, "team-b", "2e-3")

    found = run_local_json("jobs", "compare", *job_ids)
    shown = run_local("jobs", "compare", *job_ids).stdout

    field = "training_config.hyperparameters.learning_rate"
    assert [(job["job_id"], job["project"]) for job in found["jobs"]] == [
        (job_ids[0], "default"),
        (job_ids[1], "team-b"),
    ]
    assert found["differences"] == [{"field": field, "values": ["1e-3", "2e-3"]}]
    assert found["metrics"]["loss"]["final"] == [2.0, 2.0]
    assert f"{field}  1e-3  2e-3" in shown


@pytest.mark.long
def test_bad_arguments_are_named(db: Database) -> None:
    job_id = stored(db, "default", "1e-3")

    alone, twice, unknown = (run_local("jobs", "compare", job_id, *more) for more in ((), (job_id,), ("job-x",)))

    assert (alone.exit_code, "must be 2 to 20 ids of jobs" in alone.stderr) == (1, True)
    assert (twice.exit_code, "is named twice" in twice.stderr) == (1, True)
    assert (unknown.exit_code, "no job job-x" in unknown.stderr) == (1, True)
