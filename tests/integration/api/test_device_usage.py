"""GPU-hours of projects by month, and what nodes and their devices did."""

from datetime import timedelta
from typing import Any

import pytest

from app.domain.lifecycle.states import JobState
from app.models import Attempt, Node, ProjectUsage
from app.models.base import utc_now
from app.security.permissions import Role
from app.services.nodes import device_usage
from app.services.nodes.device_usage import DeviceUse, NodeUse
from tests.builders.factories import make_attempt, make_job, make_node, make_project
from tests.systems.apps import Api


@pytest.fixture
def used(api: Api) -> Api:
    with api.db.write() as session:
        make_project(session, "other")
        for project, month, hours in (("default", "2026-04", 2), ("default", "2026-05", 3), ("other", "2026-05", 0.5)):
            session.add(ProjectUsage(project=project, month=month, gpu_seconds=3600 * hours))
    return api


def rows(api: Api, query: str = "", **request: Any) -> list[tuple[Any, ...]]:
    found = api.get(f"/v1/usage/devices{query}", **request)["usage"]
    return [(each["project"], each["month"], each["gpu_hours"]) for each in found]


@pytest.mark.both_databases
def test_gpu_hours_are_by_project_and_month(used: Api) -> None:
    assert rows(used) == [("default", "2026-05", 3.0), ("other", "2026-05", 0.5), ("default", "2026-04", 2.0)]
    assert rows(used, "?by=month&since=2026-05&until=2026-05") == [(None, "2026-05", 3.5)]
    assert rows(used, "?by=project&project=default") == [("default", None, 5.0)]


def test_a_project_sees_its_own_gpu_hours(used: Api) -> None:
    key = used.make_key(Role.VIEWER, "other")

    assert rows(used, key=key) == [("other", "2026-05", 0.5)]
    assert rows(used, "?project=default", key=key) == []


def test_running_attempts_count_in_this_month(api: Api) -> None:
    with api.db.write() as session:
        node = make_node(session, "gpu-1", devices=2, device_type="h100")
        job = make_job(session, state=JobState.TRAINING)
        make_attempt(session, job, node, device_indices=(0, 1))
        session.get_one(Attempt, (job.id, job.attempt)).started_at = utc_now() - timedelta(minutes=1)

    ((project, month, hours),) = rows(api)

    assert (project, month) == ("default", f"{utc_now():%Y-%m}")
    assert hours == pytest.approx(2 / 60, rel=0.5)


def test_gpu_hours_are_a_table_for_spreadsheets(used: Api) -> None:
    answer = used.call("GET", "/v1/usage/devices", headers={"Accept": "text/csv"})
    months = used.call("GET", "/v1/usage/devices?by=month", headers={"Accept": "text/csv"})

    assert answer.mimetype == "text/csv"
    assert answer.get_data(as_text=True).splitlines() == [
        "project,month,gpu_hours",
        "default,2026-05,3.0",
        "other,2026-05,0.5",
        "default,2026-04,2.0",
    ]
    assert months.get_data(as_text=True).splitlines()[:2] == ["month,gpu_hours", "2026-05,3.5"]


@pytest.mark.parametrize(
    ("query", "status"),
    [("since=2026-13", 422), ("until=May", 422), ("by=day", 422), ("by=", 422), ("since=2026-05&until=2026-04", 400)],
)
def test_odd_months_and_groups_are_refused(api: Api, query: str, status: int) -> None:
    api.problem(api.call("GET", f"/v1/usage/devices?{query}"), status)


@pytest.mark.both_databases
def test_a_node_tells_what_its_devices_did(api: Api) -> None:
    with api.db.write() as session:
        make_node(session, "gpu-1")
    devices = [DeviceUse(index=0, utilization=88.0, memory_used_mb=70_000)]
    at = utc_now()
    device_usage.record(api.db, "gpu-1", NodeUse(at=at, cpu_percent=3.5, ram_used_mb=2000, devices=devices))

    found = api.get("/v1/nodes/gpu-1/usage?minutes=5")

    assert found["name"] == "gpu-1"
    assert found["samples"] == [
        {
            "at": f"{at:%Y-%m-%dT%H:%M}:00.000Z",
            "cpu_percent": 3.5,
            "ram_used_mb": 2000,
            "devices": [{"index": 0, "utilization": 88.0, "memory_used_mb": 70_000}],
        }
    ]
    api.problem(api.call("GET", "/v1/nodes/gpu-9/usage"), 404)
    with api.db.write() as session:
        session.delete(session.get_one(Node, "gpu-1"))
    api.problem(api.call("GET", "/v1/nodes/gpu-1/usage"), 404)
