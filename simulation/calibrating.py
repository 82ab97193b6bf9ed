"""Calibration of start estimates: ``estimated_start_at`` compared with the actual starts of a replay."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from app.domain.scheduling.preemption import Running
from app.domain.scheduling.start_estimates import LOOK_AHEAD, DeviceRelease, starts
from simulation.jobs import JobResult
from simulation.site import PassInput

# Shorter waits are ignored: planning passes and start-up dominate them.
LEAST_WAIT_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Accuracy of the estimates of jobs that waited for a minute or more; ``estimated``: how many had one.

    ``median`` and ``p90`` are of the absolute error as a fraction of the wait; ``late``: fraction of jobs that started
    later than estimated by more than a tenth of their wait.
    """

    waited: int
    estimated: int
    median: float
    p90: float
    median_seconds: float
    late: float


class RecordedEstimates:
    """Records the first estimate of every job that has one; pass it as ``watch`` of a replay."""

    def __init__(self) -> None:
        self.found: dict[
            str, tuple[float, float]
        ] = {}  # job → (time of the estimate, estimated seconds until the start)

    def __call__(self, view: PassInput) -> None:
        candidates = [*view.reserved, *(job for line in view.lines.values() for job in line[:LOOK_AHEAD])]
        first = sorted(candidates, key=lambda job: job.place)[:LOOK_AHEAD]
        if all(job.job_id in self.found for job in first):
            return
        endings = [_ending(each) for each in view.running if each.ends_in is not None]
        for job, seconds in zip(first, starts([job.request for job in first], view.nodes, endings), strict=True):
            if seconds is not None:
                self.found.setdefault(job.job_id, (view.now, seconds))


def calibrate(estimates: Mapping[str, tuple[float, float]], outcomes: Iterable[JobResult]) -> Calibration:
    """Compare estimates with waits until the first start; estimates made after that are ignored."""
    waited = [each for each in outcomes if (each.wait_seconds or 0.0) >= LEAST_WAIT_SECONDS]
    errors, seconds, late = [], [], 0
    for outcome in waited:
        at, expected = estimates.get(outcome.job.job_id, (math.inf, 0.0))
        started, wait = outcome.stays[0].started_at, outcome.wait_seconds or 0.0
        if at >= started:
            continue
        error = at + expected - started
        errors.append(abs(error) / wait)
        seconds.append(abs(error))
        late += error < -0.1 * wait
    return Calibration(
        waited=len(waited),
        estimated=len(errors),
        median=_part(errors, 0.5),
        p90=_part(errors, 0.9),
        median_seconds=_part(seconds, 0.5),
        late=late / len(errors) if errors else 0.0,
    )


def _ending(running: Running) -> DeviceRelease:
    return DeviceRelease(
        seconds=running.ends_in or 0.0,
        node=running.node,
        devices=running.devices,
        quantities=running.quantities,
        share=running.share,
    )


def _part(values: Iterable[float], part: float) -> float:
    line = sorted(values)
    return line[max(0, math.ceil(part * len(line)) - 1)] if line else 0.0
