"""A process of ours is killed at an exact moment of a job's life, m1 to m22: the job ends as it should."""

import contextlib
import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.faults.checking import assert_sound, wait_until_all_ended
from tests.faults.cluster import Cluster, eventually
from tests.faults.crash_points import POINTS
from tests.systems.system import wait_for

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

ASKED: dict[str, Any] = {"steps": 24, "step_seconds": 0.04, "save_every": 5}
OF_API = ("m1-request-parsed", "m2-before-commit", "m3-before-reply", "m4-before-doorbell")
OF_COORDINATOR = ("m4-admitted", "m5-placed")
OF_NODE = ("m6-doorbell-taken", "m7-before-claim", "m8-claimed", "m8-spawned")
OF_CONTROL_REQUESTS = {"m21-cancel-requested": "cancel", "m21-cancel-read": "cancel", "m22-asked-to-stop": "pause"}
OF_SUPERVISOR = tuple(
    point.name for point in POINTS if point.name not in {*OF_API, *OF_COORDINATOR, *OF_NODE, *OF_CONTROL_REQUESTS}
)
# The attempt is over by then: nothing has to be done again.
AFTER_THE_END = {"m19-finished", "m20-cleaning"}


@dataclass
class Swept:
    """Point → the job that it was reached for, and which process it killed; of `asked`, those whose tests run."""

    cluster: Cluster
    asked: frozenset[str]
    jobs: dict[str, str] = field(default_factory=dict)
    fired: dict[str, dict[str, Any] | None] = field(default_factory=dict)

    def of(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if name in self.asked]

    def note(self, name: str, job_id: str) -> None:
        self.jobs[name] = job_id
        self.fired[name] = self.cluster.points.fired(name)


@pytest.fixture(scope="module")
def swept(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, owned_pids: set[int]
) -> Iterator[Swept]:
    asked = frozenset(filter(None, map(_point_of, request.session.items)))
    cluster = Cluster(tmp_path_factory.mktemp("moments") / "system", slots=2, points=POINTS)
    try:
        done = Swept(cluster.start("n1", "n2"), asked)
        _kill_supervisors(done)
        _kill_others(done)
        _kill_the_api(done)
        _kill_at_control_requests(done)
        wait_until_all_ended(cluster, seconds=120)
        owned_pids.update(process.pid for process in cluster.everything())
        yield done
    finally:
        cluster.stop()


@pytest.mark.parametrize("name", OF_SUPERVISOR)
def test_a_job_survives_a_supervisor_killed_at_any_moment(swept: Swept, name: str) -> None:
    fired, job = swept.fired[name], swept.cluster.job(swept.jobs[name])

    assert fired is not None
    assert "--job" in fired["argv"], "it was the supervisor"
    assert job["status"] == "COMPLETED", swept.cluster.story(job["job_id"])
    assert job["attempt"] == (1 if name in AFTER_THE_END else 2), swept.cluster.story(job["job_id"])


@pytest.mark.parametrize("name", [*OF_NODE, *OF_COORDINATOR])
def test_a_job_survives_a_node_worker_or_coordinator_killed_at_any_moment(swept: Swept, name: str) -> None:
    job = swept.cluster.job(swept.jobs[name])

    assert swept.fired[name] is not None
    assert job["status"] == "COMPLETED", swept.cluster.story(job["job_id"])


@pytest.mark.parametrize("name", OF_API)
def test_a_submission_survives_an_api_killed_at_any_moment(swept: Swept, name: str) -> None:
    job = swept.cluster.job(swept.jobs[name])

    assert swept.fired[name] is not None
    assert job["status"] == "COMPLETED", swept.cluster.story(job["job_id"])
    named = swept.cluster.get(f"/v1/jobs?name={name}")["jobs"]
    assert [one["job_id"] for one in named] == [job["job_id"]], "sent twice with one key, it is one job"


@pytest.mark.parametrize(("name", "verb"), OF_CONTROL_REQUESTS.items())
def test_a_control_request_survives_a_kill_at_any_moment(swept: Swept, name: str, verb: str) -> None:
    job = swept.cluster.job(swept.jobs[name])

    assert swept.fired[name] is not None
    assert job["status"] == ("CANCELLED" if verb == "cancel" else "COMPLETED"), swept.cluster.story(job["job_id"])


def test_the_system_is_sound_after_all_kills(swept: Swept) -> None:
    assert_sound(swept.cluster)


def _point_of(item: pytest.Item) -> str | None:
    """The point that a test of this file is about."""
    if isinstance(item, pytest.Function) and item.path == Path(__file__) and hasattr(item, "callspec"):
        return str(item.callspec.params["name"])
    return None


def _kill_supervisors(swept: Swept) -> None:
    """All at once, each at a moment of its own."""
    cluster = swept.cluster
    # Nothing starts before its point is armed. Ended, not stopped: a stopped one might hold SQLite's only lock.
    cluster.kill("coordinator", signal.SIGTERM)
    names = swept.of(OF_SUPERVISOR)
    for name in names:
        swept.jobs[name] = cluster.train(**ASKED)
        cluster.points.arm(name, job_id=swept.jobs[name])
    cluster.start_coordinator()
    wait_until_all_ended(cluster, seconds=150)
    for name in names:
        swept.note(name, swept.jobs[name])


def _kill_others(swept: Swept) -> None:
    """The first process that reaches the point is killed, and restarted at once."""
    cluster = swept.cluster
    for name in swept.of((*OF_NODE, *OF_COORDINATOR)):
        cluster.points.arm(name)
        job_id = cluster.train(**ASKED)
        cluster.points.wait_until_fired(name)
        wait_for(lambda: any(not cluster.is_up(one) for one in cluster.names), seconds=5, what="the kill")
        cluster.revive()
        swept.note(name, job_id)


def _kill_the_api(swept: Swept) -> None:
    """The client gets no answer, or one that got away just in time, and asks again with the same key."""
    cluster = swept.cluster
    for name in swept.of(OF_API):
        cluster.points.arm(name)
        document = cluster.witnessed_job(**ASKED, changes={"name": name})
        submit = partial(cluster.call, "POST", "/v1/jobs", document, Idempotency_Key=f"key-of-{name}")
        with contextlib.suppress(OSError):  # it died over our request, as it should
            submit()
        status, body = eventually(submit)
        assert status in (200, 201), body
        cluster.points.wait_until_fired(name)
        swept.note(name, body["data"]["job_id"])


def _kill_at_control_requests(swept: Swept) -> None:
    cluster = swept.cluster
    for name in swept.of(OF_CONTROL_REQUESTS):
        verb = OF_CONTROL_REQUESTS[name]
        job_id = cluster.train(steps=5000 if verb == "cancel" else 200, step_seconds=0.05)
        cluster.wait_until_witnessed(job_id, 12)
        cluster.points.arm(name, job_id="" if name == "m21-cancel-requested" else job_id)
        status, body = eventually(partial(cluster.call, "POST", f"/v1/jobs/{job_id}/{verb}"))
        assert status in (200, 202), body
        cluster.points.wait_until_fired(name)
        if verb == "pause":
            cluster.wait_for_status(job_id, "PAUSED", seconds=30)
            assert cluster.call("POST", f"/v1/jobs/{job_id}/resume")[0] in (200, 202)
        swept.note(name, job_id)
