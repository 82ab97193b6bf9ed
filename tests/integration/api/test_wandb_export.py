"""The metrics of a job as a file for `wandb sync`: all attempts are one run."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner
from sqlalchemy import select

from app.cli.main import main
from app.domain.lifecycle.outcomes import Outcome
from app.domain.spec.model import Tracker
from app.models import Attempt, Job
from app.models.base import utc_now
from app.security.permissions import Role
from app.services.attempts import work_orders
from app.services.attempts.work_orders import WorkOrder
from app.services.provenance import wandb_export
from app.services.telemetry import stored_metrics
from app.services.telemetry.stored_metrics import MetricValue, TelemetryReports
from tests.builders.factories import make_document
from tests.builders.recovering import failed, trained, training
from tests.builders.walks import NO_WAIT, start_attempt
from tests.builders.wandb_reading import fields_of, read_records, values_of
from tests.systems.apps import Api
from tests.systems.served import serving
from trainyard.client import Client

HISTORY, SUMMARY, RUN, EXIT = 2, 3, 17, 18


def report(api: Api, work: WorkOrder, first: int, last: int, value: float, *, name: str = "loss") -> None:
    now = utc_now()
    points = [
        MetricValue(name=name, step=step, at=now + timedelta(seconds=step), value=value)
        for step in range(first, last + 1)
    ]
    stored_metrics.store(
        api.db, job_id=work.job_id, attempt=work.attempt, fence=work.fence, reports=TelemetryReports(points=points)
    )


def resumed(api: Api) -> str:
    """A job whose second attempt repeats the steps 3 and 4 of its first."""
    document = make_document(training_config={"environment": {"A_TOKEN": "hunter2"}})
    work = training(api.db, document=document, labels={"team": "support"})
    report(api, work, 1, 4, 2.0)
    report(api, work, 2, 2, float("nan"), name="eval/loss")
    failed(api.db, work, end_step=4, may_restart=False)
    with api.db.write() as session:
        session.get_one(Job, work.job_id).not_before_at = None
    again = trained(api.db, start_attempt(api.db, work.job_id), 2)
    report(api, again, 3, 6, 1.0)
    work_orders.finish(api.db, again, Outcome(kind="completed", end_step=6), NO_WAIT)
    return work.job_id


@pytest.mark.both_databases
@pytest.mark.parametrize("at_once", [2, 500])
def test_attempts_are_one_run_with_the_newest_values(api: Api, monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr(wandb_export, "POINTS_AT_ONCE", at_once)
    job_id = resumed(api)

    answer = api.call("GET", f"/v1/jobs/{job_id}/wandb?project=nlp&entity=team")

    data = answer.get_data()
    assert answer.headers["Content-Disposition"] == f'attachment; filename="run-{job_id}.wandb"'
    records = list(read_records(data))
    run = fields_of(next(each[RUN][0] for each in records if RUN in each))
    assert (run[1], run[2], run[3], run[10]) == ([job_id.encode()], [b"team"], [b"nlp"], [b"team=support"])
    config = values_of(next(each[RUN][0] for each in records if RUN in each), field=4)
    assert (config["learning_rate"], config["base_model"], config["training_type"]) == ("1e-3", "tiny", "SFT")
    steps = [values_of(each[HISTORY][0]) for each in records if HISTORY in each]
    assert [(each["_step"], each["loss"]) for each in steps] == [(1, 2.0), (2, 2.0), *((n, 1.0) for n in range(3, 7))]
    assert [each["eval/loss"] for each in steps if "eval/loss" in each] == ["NaN"]
    assert all(each["_timestamp"] > 0 and each["_runtime"] >= 0 for each in steps)
    summary = values_of(next(each[SUMMARY][0] for each in records if SUMMARY in each))
    assert summary["loss"] == 1.0
    assert 1 not in fields_of(next(each[EXIT][0] for each in records if EXIT in each))  # exit code 0
    assert b"hunter2" not in data


def test_run_that_goes_on_has_no_end_and_a_failed_one_says_so(api: Api) -> None:
    work = training(api.db)
    going_on = api.call("GET", f"/v1/jobs/{work.job_id}/wandb").get_data()
    work_orders.finish(api.db, work, Outcome(kind="failed", cause="BAD_DATA", message="x"), NO_WAIT)
    with api.db.write() as session:
        session.get_one(Job, work.job_id).status = "FAILED"

    failed_run = api.call("GET", f"/v1/jobs/{work.job_id}/wandb").get_data()

    assert not any(EXIT in each for each in read_records(going_on))
    assert [fields_of(each[EXIT][0])[1] for each in read_records(failed_run) if EXIT in each] == [[1]]


def test_export_of_many_metrics_ends_in_time_and_has_every_point(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wandb_export, "_POINTS_HELD", 30)
    work = training(api.db)
    for name in ("a", "b", "c", "d", "e"):
        report(api, work, 1, 25, 1.0, name=name)
    with api.db.read() as session:
        job = session.get_one(Job, work.job_id)

    data = b"".join(wandb_export.exported(api.db, job, Tracker()))
    with pytest.raises(TimeoutError, match="more than 0 s"):
        list(wandb_export.exported(api.db, job, Tracker(), seconds=0))

    steps = [values_of(each[HISTORY][0]) for each in read_records(data) if HISTORY in each]
    assert [each["_step"] for each in steps] == [*range(1, 26)]
    assert all({"a", "b", "c", "d", "e"} <= each.keys() for each in steps)


def test_running_time_has_that_of_the_attempt_that_goes_on(api: Api) -> None:
    work = training(api.db)
    with api.db.write() as session:
        session.get_one(Job, work.job_id).elapsed_seconds = 100.0
        (attempt,) = session.scalars(select(Attempt).where(Attempt.job_id == work.job_id))
        attempt.started_at = utc_now() - timedelta(hours=1)

    data = api.call("GET", f"/v1/jobs/{work.job_id}/wandb").get_data()

    (summary,) = [values_of(each[SUMMARY][0]) for each in read_records(data) if SUMMARY in each]
    assert 3700 <= summary["_runtime"] < 3800


def test_run_is_shown_as_the_offline_tracker_says_unless_the_query_does(api: Api) -> None:
    offline = {
        "kind": "wandb",
        "mode": "offline",
        "experiment": "docs",
        "entity": "team",
        "run_name": "a",
        "tags": ["b"],
    }
    job_id = api.submit(tracking=[offline])

    runs = [
        fields_of(next(each[RUN][0] for each in read_records(data) if RUN in each))
        for query in ("", "?project=nlp")
        for data in [api.call("GET", f"/v1/jobs/{job_id}/wandb{query}").get_data()]
    ]

    assert [(run[2], run[3], run[8], run[10]) for run in runs] == [
        ([b"team"], [b"docs"], [b"a"], [b"b"]),
        ([b"team"], [b"nlp"], [b"a"], [b"b"]),
    ]


def test_other_projects_see_no_run(api: Api) -> None:
    job_id = training(api.db).job_id

    assert api.call("GET", f"/v1/jobs/{job_id}/wandb", key=api.make_key(Role.ADMIN, "other")).status_code == 404


@pytest.fixture
def client(api: Api) -> Iterator[Client]:
    with serving(api) as served:
        yield served.client()


def test_client_saves_the_file(api: Api, client: Client, tmp_path: Path) -> None:
    job_id = resumed(api)

    client.provenance.wandb(job_id, tmp_path, project="nlp")
    saved = client.provenance.wandb(job_id, tmp_path, project="nlp")

    (run,) = saved.iterdir()
    assert (saved.name, run.name) == (f"offline-run-{job_id}", f"run-{job_id}.wandb")
    assert sum(HISTORY in each for each in read_records(run.read_bytes())) == 6


def test_command_lines_save_the_run_and_show_the_lineage(api: Api, client: Client, tmp_path: Path) -> None:
    job_id, runner = resumed(api), CliRunner(env={"TRAINYARD_URL": client.url, "TRAINYARD_API_KEY": api.key})

    saved = runner.invoke(main, ["wandb", job_id, "--to", str(tmp_path / "runs")])
    shown = runner.invoke(main, ["lineage", job_id])
    no_card = runner.invoke(main, ["model-card", job_id])

    assert (saved.exit_code, Path(saved.output.strip()).name) == (0, f"offline-run-{job_id}")
    assert "base_of" in shown.output
    assert no_card.exit_code != 0
    assert "has no result" in no_card.output
