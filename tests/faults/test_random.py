"""Faults and moments drawn at random, two for each job. The seed is printed; FAULTS_SEED repeats the same draws."""

import contextlib
import random
import time
from collections.abc import Sequence

import pytest

from tests.faults.checking import assert_sound
from tests.faults.cluster import Cluster
from tests.faults.crash_points import POINTS, Point
from tests.faults.faults import BY_NAME
from tests.faults.seeds import DRAWS, SEED

pytestmark = [pytest.mark.faults, pytest.mark.timeout(400)]

# Moments that every job reaches, in whatever process: the first process that reaches one is killed.
MOMENTS = [point.name for point in POINTS if point.moment not in ("m1", "m2", "m3", "m21", "m22")]
# Faults that take long, or that need the job to stay on its node.
LEFT_OUT = {"F8-lose-machine", "F10-ends-too-early", "F12-hang", "F16-node-cut-off", "F39-drained"}
KINDS = sorted(BY_NAME.keys() - LEFT_OUT)


@pytest.fixture(scope="module")
def points() -> Sequence[Point]:
    return POINTS


@pytest.mark.parametrize("number", range(DRAWS))
def test_a_job_survives_random_faults(cluster: Cluster, number: int) -> None:
    rng = random.Random(f"{SEED}/{number}")
    moment, nth, kind = rng.choice(MOMENTS), rng.randint(1, 3), rng.choice(KINDS)
    steps, begin, pause = rng.randint(60, 140), rng.randint(1, 40), rng.random()
    drawn = f"FAULTS_SEED={SEED}, draw {number}: {moment} for the {nth}th time, {kind} from step {begin} on"
    print(drawn)  # noqa: T201 – pytest shows it with the failure

    cluster.points.arm(moment, nth=nth)
    job_id = cluster.train(steps=steps, step_seconds=0.06, save_every=rng.choice((5, 10, 25)))
    cluster.wait_until_trained_or_ended(job_id, begin)
    time.sleep(pause)  # any moment between two steps
    with contextlib.suppress(StopIteration, IndexError):  # the job may be between two attempts, or over
        BY_NAME[kind].inject(cluster, job_id)
    cluster.points.disarm(moment)

    assert_sound(cluster, seconds=150)
    assert cluster.job(job_id)["status"] == "COMPLETED", f"{drawn}\n{cluster.story(job_id)}"
