"""A job trains while one kind of fault is injected: it ends as it should, once, and all invariants hold afterwards."""

from types import ModuleType

import pytest

from tests.faults.checking import assert_sound
from tests.faults.cluster import Cluster
from tests.faults.faults import Fault, of

STEPS = 70
# What costs an attempt has to find one: on a busy machine seconds may pass before it comes.
LONGER_STEPS = 140
# One for each process and server there is, in a minute: the others are among the long tests (decision 0020).
QUICK = {
    "F1-kill-api",
    "F2-kill-redis",
    "F3-flushall",
    "F6-kill-coordinator",
    "F7-kill-node-worker",
    "F8-kill-supervisor",
    "F9-kill-rank",
    "F22-postgres-restart",
}


def every_fault(module: ModuleType) -> pytest.MarkDecorator:
    """A parameter ``fault`` for each fault that the module injects."""
    params = [
        pytest.param(fault, id=fault.name, marks=() if fault.name in QUICK else pytest.mark.long)
        for fault in of(module)
    ]
    return pytest.mark.parametrize("fault", params)


def assert_survived(cluster: Cluster, fault: Fault) -> None:
    cluster.found_dead.clear()
    job_id = cluster.train(steps=LONGER_STEPS if fault.attempts == 2 else STEPS, step_seconds=0.05)
    cluster.wait_until_witnessed(job_id, 12)

    fault.inject(cluster, job_id)

    job = cluster.wait_for_end(job_id, seconds=90)
    assert_sound(cluster)
    assert cluster.found_dead == [], "processes ended that the fault did not kill"
    if fault.attempts is not None:
        assert job["attempt"] == fault.attempts, cluster.story(job_id)
