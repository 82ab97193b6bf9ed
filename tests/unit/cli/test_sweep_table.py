"""Sweeps and trials in words."""

from typing import Any, cast

import pytest

from app.cli.client.sweeps import table
from app.cli.client.sweeps.views import Snapshot, shown
from tests.builders.sweep_answers import DOCUMENT, SWEEP_ID, VALUES, report, sweep, trial
from trainyard.records import Sweep, Trial


def of(answer: dict[str, Any]) -> Sweep:
    return cast("Sweep", answer)


def row(answer: dict[str, Any]) -> list[str]:
    return table.row(of(sweep()), cast("Trial", answer))


def test_header_says_method_trials_best_device_hours_and_time_left() -> None:
    running = sweep(best=17, trials_by_state={"RUNNING": 2, "COMPLETED": 21}, eta_seconds=4210.0)

    assert table.header(of(running)) == (
        f"{SWEEP_ID} support-lr   tpe + asha (100, 300, 900 steps)   trial 23 of 60   best 1.412 (#17)   "
        "14.20 of 40 device hours   about 1 h 10 min"
    )


def test_header_says_what_the_next_device_hour_may_bring() -> None:
    forecast = {"expected_best_after_an_hour": 1.4, "expected_improvement": 0.012, "trials": 3.2}

    running, ended = (of(sweep(status, best=17, forecast=forecast)) for status in ("RUNNING", "COMPLETED"))
    assert table.header(running).endswith("   next device hour 1.4 (better by 0.012)")
    assert "next device hour" not in table.header(ended)


def test_a_result_of_an_earlier_sweep_is_named_by_its_own() -> None:
    earlier = {"sweep_id": "sweep-0", "number": 4}
    shown = sweep(best=-2)
    shown["best"]["earlier"] = earlier

    assert table.best(of(shown)) == "best 1.412 (#4 of sweep-0)"
    found = row(trial(-2, "COMPLETED", step=900, objectives=[1.412], earlier=earlier))
    assert (found[0], found[-1]) == ("-2", "#4 of sweep-0")


def test_header_of_a_new_sweep_has_what_is_known() -> None:
    document = {**DOCUMENT, "early_stopping": {"name": "none"}, "method": {"name": "grid"}, "budget": {}}

    assert table.header(of(sweep("PENDING", document=document, device_hours=0.0))) == (
        f"{SWEEP_ID} support-lr   grid   trial 0   0.00 device hours"
    )


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({"name": "median", "unit": "epochs", "min": 1, "max": 243}, "tpe + median (1, 3, 9, 27, 81 … epochs)"),
        ({"name": "patience", "unit": "steps", "min": 50, "max": 900, "patience": 2}, "2 reports, every 50 steps"),
    ],
)
def test_rungs_are_named(rule: dict[str, Any], expected: str) -> None:
    assert expected in table.method(of(sweep(document={**DOCUMENT, "early_stopping": rule})))


def test_columns_have_short_names_where_those_are_clear() -> None:
    assert table.columns(of(sweep())) == [
        *("#", "state", "learning_rate", "batch_size", "lr_scheduler_type", "warmup_ratio", "eval_loss", "step", "rung")
    ]
    assert table.short_names(["environment.SIZE", "a.SIZE", "b.other"]) == ["environment.SIZE", "a.SIZE", "other"]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (trial(3, job_status="QUEUED"), ["3", "running", "", "queued", ""]),
        (trial(3, step=412, reports=[report(100, 1.498, 1, 2)]), ["3", "running", "1.498", "412/900", "1 of 2 at 100"]),
        (trial(3, step=412, total_steps=None), ["3", "running", "", "412", ""]),
        (
            trial(3, step=900, waits_for=[{"evaluation_id": "job-9", "status": "QUEUED"}]),
            ["3", "running", "", "evaluated", ""],
        ),
        (trial(3, "COMPLETED", step=900, objectives=[1.412]), ["3", "done", "1.412", "900", ""]),
        (
            trial(3, "STOPPED", step=100, objectives=[2.31], reports=[report(100, 2.31, 29, 31, continues=False)]),
            ["3", "stopped", "2.31", "100", "29 of 31 at 100"],
        ),
        (trial(3, "FAILED", reason="OUT_OF_MEMORY: a\nb"), ["3", "failed", "", "0", "OUT_OF_MEMORY: a b"]),
    ],
)
def test_row_of_each_state(answer: dict[str, Any], expected: list[str]) -> None:
    found = row(answer)

    assert [*found[:2], *found[6:]] == expected
    assert found[2:6] == ["2.1e-4", "16", "linear", "–"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, "true"),
        (16, "16"),
        (0.25, "0.25"),
        (0.0, "0"),
        (0.0001234567, "1.235e-4"),
        (1e-5, "1e-5"),
        (2_500_000.0, "2.5e6"),
        (float("nan"), "nan"),
        ("a\nb  c", "a b c"),
        ("x" * 40, "x" * 31 + "…"),
    ],
)
def test_values_are_short(value: Any, expected: str) -> None:
    assert table.text(value) == expected


@pytest.mark.parametrize(("seconds", "expected"), [(29, "29 s"), (61, "1 min"), (3600, "1 h 0 min")])
def test_time_left_is_rounded(seconds: float, expected: str) -> None:
    assert table.about(seconds) == expected


def test_ending_counts_trials_and_what_early_stopping_spared() -> None:
    ended = sweep("COMPLETED", best=1, trials_by_state={"COMPLETED": 1, "STOPPED": 1})
    trials = [trial(0, "STOPPED", step=100), trial(1, "COMPLETED", step=900)]

    assert table.ending(of(ended), cast("list[Trial]", trials)) == (
        f"{SWEEP_ID} COMPLETED after 12:30, 2 trials: 1 done, 1 stopped; early stopping spared 44% of all steps; "
        "best 1.412 (#1): learning_rate 2.1e-4, batch_size 16, lr_scheduler_type linear"
    )


def test_progress_has_the_values_by_number_and_what_is_spared() -> None:
    ended = [trial(n, "COMPLETED", step=900, objectives=[3.0 - n]) for n in range(3)]
    ended[2] |= {"steps_saved": 360, "forked_from": 0}
    newest_first = [trial(3, "STOPPED", step=180), *reversed(ended)]

    found, none = (
        table.progress(of(sweep(trials_by_state=by)), cast("list[Trial]", trials))
        for by, trials in (({"COMPLETED": 3, "STOPPED": 1}, newest_first), ({"RUNNING": 1}, [trial(0)]))
    )

    assert found == "eval_loss █▅▁   stopped early: 20% of all steps spared   shared trunks: 10%"
    assert none == ""
    assert "of the steps of the newest 4 trials spared" in table.progress(
        of(sweep(trials_by_state={"COMPLETED": 90})), cast("list[Trial]", newest_first)
    )


def test_ending_of_a_failed_sweep_says_why() -> None:
    ended = sweep("FAILED", status_reason="the first 3 trials failed alike", trials_by_state={"FAILED": 3})

    assert table.ending(of(ended), ()) == (
        f"{SWEEP_ID} FAILED after 12:30, 3 trials: 3 failed; the first 3 trials failed alike"
    )


def test_the_best_trial_is_shown_first_then_those_that_run() -> None:
    trials = [trial(5, "STOPPED"), trial(4), trial(3, "STOPPED"), trial(2), trial(1, "COMPLETED", values=VALUES)]

    found = shown(Snapshot(of(sweep(best=1)), cast("list[Trial]", trials)), 4)

    assert [each["number"] for each in found] == [1, 4, 2, 5]
