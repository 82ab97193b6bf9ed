"""Rungs in tokens: each lies at the step at which a trial has seen so many."""

from collections.abc import Callable
from typing import Any

import pytest

from app.models import Metric
from app.models.base import utc_now
from tests.builders.sweep_runs import SweepRun, constant
from tests.builders.sweeps import make_sweep_document
from tests.systems.apps import Api

Make = Callable[..., SweepRun]
RULE = {"name": "asha", "unit": "tokens", "min": 300, "max": 2700}


def make(make_run: Make, **hyperparameters: str) -> SweepRun:
    job: dict[str, Any] = make_sweep_document()["job"]
    job["training_config"]["evaluation"] = {"strategy": "steps", "steps": 1}
    job["training_config"]["hyperparameters"] |= hyperparameters
    return make_run(job=job, early_stopping=RULE, budget={"max_trials": 3, "parallel_trials": 3})


def see(run: SweepRun, number: int, *, tokens: dict[int, int]) -> None:
    """The job of a trial reports how many tokens it has seen after these steps."""
    with run.db.write() as session:
        for step, seen in tokens.items():
            session.add(
                Metric(
                    job_id=run.job(number).id,
                    name="tokens",
                    step=step,
                    at=utc_now(),
                    value=float(seen),
                    attempt=1,
                    seq=1000 + step,
                )
            )


@pytest.mark.both_databases
def test_trials_are_compared_where_they_have_seen_as_many_tokens(make_run: Make, api: Api) -> None:
    run = make(make_run)
    for _ in range(3):
        run.step()
    for number, (steps, value) in enumerate([(3, 0.5), (6, 0.1), (2, 0.9)]):
        run.train(number, to=10, curve=lambda _values, step, value=value: value + step / 100)  # type: ignore[misc]
        see(run, number, tokens={step: 300 * step // steps for step in range(1, 9)})
    run.step()

    reports = {(report.number, report.rung): report.value for report in run.reports()}
    assert {number: reports[number, 300] for number in range(3)} == pytest.approx({0: 0.53, 1: 0.16, 2: 0.92})
    assert len(reports) == 3
    assert [each.stop_reason for each in run.trials()] == ["", "", "rank 3 of 3 at 300 tokens"]
    assert api.get(f"/v1/sweeps/{run.id}/replay")["is_equal"] is True


def test_a_step_that_only_a_stop_has_logged_is_no_rung(make_run: Make) -> None:
    run = make(make_run, logging_steps="4")
    run.step()
    run.train(0, to=9, curve=constant(0.5))
    see(run, 0, tokens={4: 200, 7: 310})
    run.step()
    assert run.reports() == []

    see(run, 0, tokens={8: 350})
    run.step()

    assert [(report.rung, run.trials()[0].step) for report in run.reports()] == [(300, 8)]


@pytest.mark.long
def test_trials_that_report_no_tokens_are_not_compared(make_run: Make) -> None:
    run = make(make_run)
    run.run(curve=constant(0.5))

    assert (run.reports(), set(run.states())) == ([], {"COMPLETED"})
