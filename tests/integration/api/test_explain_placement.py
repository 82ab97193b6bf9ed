"""Why a job starts on a node or does not, over HTTP: what is said is what the planner does."""

from datetime import timedelta
from typing import Any

import pytest

from app.domain.lifecycle.states import JobState
from app.models import Job, Node, Queue
from app.models.base import utc_now
from app.services.scheduling import planner
from tests.builders.factories import make_attempt, make_document, make_job, make_node
from tests.systems.apps import Api

pytestmark = pytest.mark.both_databases


def why(api: Api, node: str, job_id: str) -> dict[str, Any]:
    return dict(api.get(f"/v1/nodes/{node}/why/{job_id}"))


def reasons(fit: dict[str, Any]) -> dict[str, str]:
    assert all(each["passed"] is (each["reason"] == "") for each in fit["filters"])
    return {each["filter"]: each["reason"] for each in fit["filters"] if not each["passed"]}


def waiting(api: Api, *, labels: tuple[str, ...] = (), **resources: Any) -> str:
    """A job that asks for these, and a node of two slots."""
    with api.db.write() as session:
        make_node(session, "gpu-1", labels=list(labels))
        job = make_job(session, document=make_document(resource_config={"gpu_count": 1, **resources}))
        return str(job.id)


def test_job_that_nothing_stands_in_the_way_of_starts_there(api: Api) -> None:
    job_id = waiting(api, labels=("rack-1",), required_node_labels=["rack-1"])

    fit = why(api, "gpu-1", job_id)

    assert (fit["node"], fit["job_id"], fit["could_hold"], fit["starts_now"]) == ("gpu-1", job_id, True, True)
    assert [each["filter"] for each in fit["filters"]] == [
        "node_state",
        "accepts_training",
        "accepts_inference",
        "devices",
        "cpu_cores",
        "ram",
        "storage",
        "required_capabilities",
        "required_node_labels",
        "forbidden_node_labels",
        "free_jobs",
        "free_devices",
        "free_amounts",
        "not_failed_here",
        "job_waits",
    ]
    assert reasons(fit) == {}
    assert [placed.node for placed in planner.plan_once(api.db)] == ["gpu-1"]
    assert reasons(why(api, "gpu-1", job_id))["job_waits"] == "the job is SCHEDULING on gpu-1"


@pytest.mark.parametrize(
    ("resources", "filter_", "reason"),
    [
        ({"gpu_count": 3}, "devices", "has 2 of 3 such devices"),
        ({"ram_min_mb": 10**9}, "ram", "of 1000000000 MB memory"),
        ({"required_node_labels": ["rack-2"]}, "required_node_labels", "is not labelled rack-2 (required_node_labels)"),
        ({"forbidden_node_labels": ["gpu-1"]}, "forbidden_node_labels", "is gpu-1 (forbidden_node_labels)"),
    ],
)
def test_node_that_could_never_hold_it(sqlite_api: Api, resources: dict[str, Any], filter_: str, reason: str) -> None:
    job_id = waiting(sqlite_api, **resources)

    fit = why(sqlite_api, "gpu-1", job_id)

    assert (fit["could_hold"], fit["starts_now"]) == (False, False)
    assert reason in reasons(fit)[filter_]
    assert planner.plan_once(sqlite_api.db) == []


def test_node_that_is_full(api: Api) -> None:
    job_id = waiting(api, gpu_count=2)
    with api.db.write() as session:
        running = make_job(session, state=JobState.TRAINING)
        make_attempt(session, running, session.get_one(Node, "gpu-1"))

    fit = why(api, "gpu-1", job_id)

    assert (fit["could_hold"], fit["starts_now"]) == (True, False)
    assert reasons(fit) == {"free_devices": "1 of 2 such devices are free"}
    assert planner.plan_once(api.db) == []


def test_job_that_runs_there_has_taken_what_is_taken(api: Api) -> None:
    job_id = waiting(api, gpu_count=2)
    assert len(planner.plan_once(api.db)) == 1

    assert reasons(why(api, "gpu-1", job_id)) == {"job_waits": "the job is SCHEDULING on gpu-1"}


def test_pause_of_a_clock_that_was_set_back_delays_no_job(api: Api) -> None:
    job_id = waiting(api)
    with api.db.write() as session:
        job = session.get_one(Job, job_id)
        job.queued_at, job.not_before_at = utc_now() + timedelta(hours=3), utc_now() + timedelta(hours=4)

    assert why(api, "gpu-1", job_id)["starts_now"] is True
    assert len(planner.plan_once(api.db)) == 1


def test_node_that_takes_nothing_and_job_that_waits_for_something_else(sqlite_api: Api) -> None:
    job_id = waiting(sqlite_api)
    with sqlite_api.db.write() as session:
        make_node(session, "gpu-2")
        session.get_one(Node, "gpu-1").state = "draining"
        session.get_one(Job, job_id).excluded_nodes = ["gpu-2"]
        session.get_one(Queue, "default").is_paused = True

    assert reasons(why(sqlite_api, "gpu-1", job_id)).keys() == {"node_state", "job_waits"}
    with sqlite_api.db.write() as session:
        session.get_one(Node, "gpu-1").state = "ready"
        session.get_one(Job, job_id).not_before_at = utc_now() + timedelta(minutes=1)
    away = reasons(why(sqlite_api, "gpu-2", job_id))
    assert away["not_failed_here"] == "the job failed here repeatedly"
    assert away["job_waits"].startswith("the job is retried at ")
    with sqlite_api.db.write() as session:
        session.get_one(Job, job_id).not_before_at = None
    assert "is paused" in reasons(why(sqlite_api, "gpu-1", job_id))["job_waits"]


def test_what_is_not_there_is_missing(sqlite_api: Api) -> None:
    job_id = waiting(sqlite_api)

    assert "gpu-9" in sqlite_api.problem(sqlite_api.call("GET", f"/v1/nodes/gpu-9/why/{job_id}"), 404)["message"]
    assert sqlite_api.problem(sqlite_api.call("GET", "/v1/nodes/gpu-1/why/job-9"), 404)


def test_scores_say_which_of_the_nodes_it_is_given(api: Api) -> None:
    job_id = waiting(api, ram_min_mb=100)
    with api.db.write() as session:
        make_node(session, "gpu-2")
        running = make_job(session, state=JobState.TRAINING)
        make_attempt(session, running, session.get_one(Node, "gpu-1"))

    first, second = why(api, "gpu-1", job_id), why(api, "gpu-2", job_id)

    given = {each["name"]: (each["value"], each["weight"], each["points"]) for each in first["scores"]}
    assert given == {
        "device": (1.0, 100.0, 100.0),
        "memory": (1.0, 50.0, 50.0),
        "reputation": (1.0, 30.0, 30.0),
        "active_jobs": (1.0, -10.0, -10.0),
        "shares": (0.0, 500.0, 0.0),
        "pack": (1.0, 0.0, 0.0),
        "same_switch": (0.0, 200.0, 0.0),
        "affinity": (0.0, 1000.0, 0.0),
        "linked": (0.0, 100.0, 0.0),
        "cached": (0.0, 50.0, 0.0),
    }
    assert (first["score"], second["score"]) == (170.0, 180.0)
    assert (api.get("/v1/nodes/gpu-1")["active_jobs"], api.get("/v1/nodes/gpu-2")["active_jobs"]) == (1, 0)
    assert [placed.node for placed in planner.plan_once(api.db)] == ["gpu-2"]


def test_explanation_for_a_gang_says_whether_enough_nodes_are_free(api: Api) -> None:
    job_id = waiting(api, node_count=2)

    (alone,) = [each for each in why(api, "gpu-1", job_id)["filters"] if each["filter"] == "enough_nodes"]
    with api.db.write() as session:
        make_node(session, "gpu-2")
    (both,) = [each for each in why(api, "gpu-1", job_id)["filters"] if each["filter"] == "enough_nodes"]

    assert (alone["passed"], both["passed"]) == (False, True)
    assert alone["reason"] == "needs 1 CPU slot on each of 2 nodes; only 1 ready node could hold that"


def test_preferred_node_gets_the_job_and_explains_it(api: Api) -> None:
    job_id = waiting(api, labels=("slow",), node_affinity=["nvlink", "rack-1|rack-2"], node_anti_affinity=["slow"])
    with api.db.write() as session:
        make_node(session, "gpu-2", labels=["rack-2"])
        make_attempt(session, make_job(session, state=JobState.TRAINING), session.get_one(Node, "gpu-2"))

    points = {name: why(api, name, job_id)["scores"] for name in ("gpu-1", "gpu-2")}

    affinity = {
        name: each["points"] for name, scores in points.items() for each in scores if each["name"] == "affinity"
    }
    assert affinity == {"gpu-1": -1000.0, "gpu-2": 500.0}
    assert [placed.node for placed in planner.plan_once(api.db)] == ["gpu-2"]
