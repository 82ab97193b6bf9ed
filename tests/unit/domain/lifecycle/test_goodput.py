"""All of a job's time is accounted for, and only steps that count are productive."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.lifecycle.goodput import AttemptRun, Spell, goodput
from app.domain.lifecycle.states import JobState

ZERO = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return ZERO + timedelta(seconds=seconds)


def run(
    since: float, ready: float | None, until: float, *, steps: int = 10, lost: int = 0, **more: float
) -> AttemptRun:
    return AttemptRun(
        started_at=at(since),
        trained_at=None if ready is None else at(ready),
        ended_at=at(until),
        steps=steps,
        lost_steps=lost,
        detect_seconds=more.get("detect", 0.0),
        failed=bool(more.get("failed", False)),
    )


def spell(state: JobState, since: float, until: float) -> Spell:
    return Spell(state=state, since=at(since), until=at(until))


def parts(runs: list[AttemptRun], spells: list[Spell], end: float) -> dict[str, float]:
    found = goodput(runs, spells, at(end))
    assert found is not None
    return {"productive": found.productive_seconds} | {k: v for k, v in found.badput.items() if v}


def test_a_job_that_never_started_has_no_goodput() -> None:
    assert goodput([], [], at(9)) is None


def test_a_run_without_faults_is_productive_but_for_its_start_and_its_standstills() -> None:
    spells = [
        spell(JobState.CHECKPOINTING, 40, 43),
        spell(JobState.EVALUATING, 50, 55),
        spell(JobState.EXPORTING, 95, 100),
    ]

    assert parts([run(0, 10, 100)], spells, 100) == {
        "start_seconds": 10.0,
        "checkpoint_seconds": 3.0,
        "evaluate_seconds": 5.0,
        "export_seconds": 5.0,
        "productive": 77.0,
    }


def test_a_failure_costs_its_detection_its_lost_steps_and_the_way_back() -> None:
    runs = [run(0, 10, 60, steps=20, lost=5, detect=10, failed=True), run(65, 70, 100)]

    assert parts(runs, [], 100) == {
        "start_seconds": 10.0,
        "detect_seconds": 10.0,
        "recompute_seconds": 10.0,
        "restart_seconds": 10.0,
        "productive": 60.0,
    }


def test_a_pause_is_left_out_but_not_the_wait_after_it() -> None:
    runs = [run(0, 0, 10), run(110, 115, 120)]

    found = goodput(runs, [spell(JobState.PAUSED, 10, 100)], at(120))

    assert found is not None
    assert (found.wall_seconds, found.productive_seconds, found.ratio) == (30.0, 15.0, 0.5)
    assert (found.badput["queue_seconds"], found.badput["start_seconds"]) == (10.0, 5.0)


@pytest.mark.parametrize(("failed", "productive"), [(False, 10.0), (True, 0.0)])
def test_of_a_script_that_reports_no_steps_only_its_end_tells(failed: bool, productive: float) -> None:  # noqa: FBT001
    assert parts([run(0, 0, 10, steps=0, failed=failed)], [], 10)["productive"] == productive


def test_an_attempt_that_never_trained_is_all_start() -> None:
    assert parts([run(0, None, 30, failed=True)], [], 30) == {"start_seconds": 30.0, "productive": 0.0}


TIMES = st.lists(st.integers(0, 1000), min_size=3, max_size=30).map(sorted)


@given(TIMES, st.lists(st.tuples(st.sampled_from(list(JobState)), st.integers(0, 1000)), max_size=8), st.data())
def test_the_parts_add_up_to_the_whole(
    times: list[int], states: list[tuple[JobState, int]], data: st.DataObject
) -> None:
    runs = [
        run(
            since,
            ready,
            until,
            steps=data.draw(st.integers(0, 9)),
            lost=data.draw(st.integers(0, 20)),
            detect=data.draw(st.integers(0, 50)),
            failed=data.draw(st.booleans()),
        )
        for since, ready, until in zip(times[::3], times[1::3], times[2::3], strict=False)
    ]
    changes = sorted(states, key=lambda pair: pair[1])
    spells = [spell(a[0], a[1], b[1]) for a, b in pairwise(changes)]
    end = times[-1]

    found = goodput(runs, spells, at(end))

    assert found is not None
    first, last = runs[0].started_at, max(at(end), runs[-1].ended_at)
    assert found.wall_seconds <= (last - first).total_seconds() + 0.01
    assert found.productive_seconds + sum(found.badput.values()) == pytest.approx(found.wall_seconds, abs=0.01)
    assert 0.0 <= found.ratio <= 1.0
