"""Errors of estimated starts on replays whose jobs know their end: the figures of docs/explanation/scheduling.md."""

from dataclasses import replace

import pytest

from simulation.calibrating import Calibration, RecordedEstimates, calibrate
from simulation.generating import Workload, make_trace
from simulation.jobs import Behaviour
from simulation.trace import TraceJob
from tests.builders.simulated import make_site, make_traced, replayed

# Jobs alike but for their length, which come faster than they end, so that a line forms and is worked off.
ALIKE = [make_traced(at * 60.0, 900 + at * 7919 % 1800, job_id=f"alike{at:03}") for at in range(150)]


def calibrated(trace: list[TraceJob], *gpus: int, eta_sigma: float = 0.0) -> Calibration:
    estimates = RecordedEstimates()
    done = replayed(trace, make_site(*gpus), behaviour=Behaviour(eta_sigma=eta_sigma), watch=estimates)
    return calibrate(estimates.found, done.outcomes)


def test_estimates_of_a_small_trace_are_as_calculated_by_hand() -> None:
    trace = [
        make_traced(0, 1000, job_id="runs"),
        make_traced(100, 500, job_id="estimated"),
        make_traced(200, 10, job_id="behind it: no estimate"),
    ]

    found = calibrated(trace, 1)

    assert (found.waited, found.estimated) == (2, 1)
    assert (found.median, found.median_seconds, found.late) == (0, 0, 0)


@pytest.mark.long
def test_estimates_for_equal_jobs_are_slightly_late_and_never_early() -> None:
    found = calibrated(ALIKE, 8, 8)

    # The estimate assumes that jobs ahead in the queue keep their devices, but some end before this job starts.
    assert found.estimated == found.waited >= 100
    assert found.median <= 0.12
    assert found.p90 <= 0.25
    assert found.late == 0


@pytest.mark.long
def test_estimates_are_as_wrong_as_the_etas_of_running_jobs() -> None:
    found = calibrated(ALIKE, 8, 8, eta_sigma=0.3)

    assert 0.12 < found.median <= 0.5
    assert found.late > 0


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
def test_estimates_for_jobs_of_all_sizes_have_the_right_magnitude(seed: int) -> None:
    workload = Workload(jobs=200, nodes=3, load=0.9, seed=seed)
    plain = [replace(job, project="p", priority=5, is_preemptible=False) for job in make_trace(workload)]

    found = calibrated(plain, 8, 8, 8)

    assert found.estimated >= 0.8 * found.waited
    assert found.median <= 1.0
