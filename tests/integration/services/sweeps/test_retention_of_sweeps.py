"""Retention of sweeps: when their records and their jobs are deleted, and what answers say of one that is gone."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from app.models import Job, Sweep, SweepEvent, Trial
from app.models.base import utc_now
from app.security.permissions import Role
from app.services.jobs.control import requests as control_requests
from app.services.operations.retention import rules
from app.services.operations.retention.context import RetentionContext
from config.retention import RetentionSettings
from config.settings import load_settings
from tests.builders.sweep_runs import SweepRun
from tests.builders.sweeps import make_sweep_document
from tests.integration.services.sweeps.test_benchmark_objectives import (
    checkpoint,
    complete,
    evaluate,
    evaluation,
    planned,
)
from tests.systems.apps import SECRET_KEY, Api

pytestmark = pytest.mark.both_databases

Make = Callable[..., SweepRun]
Prune = Callable[..., dict[str, int]]
TWO = {"budget": {"max_trials": 2, "parallel_trials": 1}}
PAUSING = {"early_stopping": {"name": "asha", "min": 3, "max": 27, "losers": "pause"}, **TWO}


@pytest.fixture
def prune(api: Api, tmp_path: Path) -> Prune:
    """Prunes in forty days' time; returns what → how many."""

    def run(*, dry_run: bool = False, **days: int) -> dict[str, int]:
        variables = {f"TRAINYARD_RETENTION_{name.upper()}_DAYS": str(each) for name, each in days.items()}
        given = {"TRAINYARD_DATA_DIR": str(tmp_path / "data"), "TRAINYARD_SECURITY_SECRET_KEY": SECRET_KEY}
        settings = load_settings({**given, **variables})
        now = utc_now() + timedelta(days=40)
        return {
            rule.what: pruned.count
            for rule, pruned in rules.prune(api.db, settings, actor="test", dry_run=dry_run, now=now)
            if pruned.count
        }

    return run


def count(api: Api, model: Any) -> int:
    with api.db.read() as session:
        return session.scalar(select(func.count()).select_from(model)) or 0


def test_an_old_sweep_goes_with_its_records_and_without_its_jobs(make_run: Make, api: Api, prune: Prune) -> None:
    run, living = make_run(**TWO), make_run(**TWO)
    run.run()
    living.step()
    job_id = run.job(0).id

    assert prune(sweeps=30, dry_run=True) == {"sweeps": 1}
    assert prune(sweeps=50) == {}
    assert prune(sweeps=30) == {"sweeps": 1}

    assert (count(api, Sweep), count(api, Trial), count(api, Job)) == (1, 1, 3)
    assert api.get(f"/v1/jobs/{job_id}")["sweep_id"] is None
    today = f"{utc_now():%Y-%m-%d}"
    for path in ("", "/replay", "/best", "/trials"):
        problem = api.problem(api.call("GET", f"/v1/sweeps/{run.id}{path}"), 404)
        assert problem["message"] == f"no sweep {run.id}: it was deleted on {today} by retention"
    stranger = api.make_key(Role.USER, "other")
    problem = api.problem(api.call("GET", f"/v1/sweeps/{run.id}", key=stranger), 404)
    assert problem["message"] == f"no sweep {run.id}"
    assert prune(sweeps=30) == {}


def test_jobs_of_trials_wait_for_the_end_of_their_sweep(make_run: Make, api: Api, prune: Prune) -> None:
    run = make_run(**TWO)
    run.step()
    run.train(0)
    run.end(0)
    run.step()

    assert prune(jobs=30, checkpoints=30, logs=30, metrics=30) == {}

    run.run()
    assert prune(jobs=50) == {}
    assert prune(jobs=30) == {"jobs": 2}
    best = api.get(f"/v1/sweeps/{run.id}/best")["trials"]
    assert [(each["job_id"], each["state"]) for each in best] == [(None, "COMPLETED")]
    assert api.get(f"/v1/sweeps/{run.id}/replay")["is_equal"]


def test_retention_keeps_evaluations_while_their_training_or_its_sweep_runs(make_run: Make) -> None:
    run = make_run(**planned("checkpoint", "end", budget={"max_trials": 1}))
    context = RetentionContext(
        plane=run.plane, settings=RetentionSettings(), now=utc_now() + timedelta(days=40), dry_run=True
    )
    run.step()
    checkpoint(run, 0, 9)
    evaluate(run, 0, 0.5, step=9)
    assert list(context.ended_before(30)) == []  # it still trains

    complete(run, 0)
    assert list(context.ended_before(30)) == []  # its sweep still runs

    evaluate(run, 0, 0.7)
    while run.sweep().finished_at is None:
        run.step()
    assert list(context.ended_before(50)) == []
    both = {evaluation(run, 0).id, evaluation(run, 0, 9).id}
    assert {each for ids in context.ended_before(30) for each in ids} == {run.job(0).id, *both}


@pytest.mark.long
def test_what_began_with_a_sweep_goes_on_without_it(make_run: Make, api: Api, prune: Prune) -> None:
    first = make_run(**TWO)
    first.run()
    document = make_sweep_document(warm_start={"sweeps": [first.id], "count": True}, budget=TWO["budget"])
    warm = first.another(api.data(api.post("/v1/sweeps", document), 201)["sweep_id"])
    fork = first.another(api.data(api.post(f"/v1/sweeps/{first.id}/fork", {}), 201)["sweep_id"])
    known = warm.known()

    assert prune(jobs=30, sweeps=30) == {"jobs": 2, "sweeps": 1}

    assert (warm.known(), len(fork.known())) == (known, 2)
    best = api.get(f"/v1/sweeps/{warm.id}/best")["trials"]
    assert (best[0]["number"] < 0, best[0]["earlier"]["sweep_id"]) == (True, first.id)
    for run in (warm, fork):
        run.run()
        assert api.get(f"/v1/sweeps/{run.id}/replay")["is_equal"]
    refused = make_sweep_document(warm_start={"sweeps": [first.id]})
    assert first.id in api.problem(api.post("/v1/sweeps", refused), 404)["message"]
    assert first.id in api.problem(api.post(f"/v1/sweeps/{first.id}/fork", {}), 404)["message"]


@pytest.mark.long
def test_a_replay_without_the_history_says_what_is_missing(make_run: Make, api: Api, prune: Prune) -> None:
    plain, by_hand = make_run(**PAUSING), make_run(**PAUSING)
    by_hand.step()
    by_hand.halt(0, at=3)
    by_hand.step()
    with by_hand.db.write() as session:
        control_requests.resume(session, by_hand.job(0).id, actor="person")
    for run in (plain, by_hand):
        run.run()
        assert api.get(f"/v1/sweeps/{run.id}/replay")["is_equal"]

    assert prune(events=30)["events"] > 0

    assert count(api, SweepEvent) == 0
    assert api.get(f"/v1/sweeps/{plain.id}/events")["events"] == []
    assert api.get(f"/v1/sweeps/{plain.id}/replay")["is_equal"]
    detail = api.problem(api.call("GET", f"/v1/sweeps/{by_hand.id}/replay"), 409)["message"]
    assert "a person exempted trials from early stopping" in detail
    assert "TRAINYARD_RETENTION_EVENTS_DAYS" in detail
