"""Every device with who uses it: for people, within what they may see."""

from dataclasses import replace

import pytest
from sqlalchemy import update

from app.database.engine import Database
from app.domain.lifecycle.states import JobState
from app.models import Node, StuckDevice
from app.models.base import utc_now
from app.services.access.api_keys import ADMINISTRATOR
from app.services.nodes import device_grid
from app.services.requests.pagination import PageRequest
from tests.builders.factories import make_attempt, make_job, make_node, make_project

pytestmark = pytest.mark.both_databases
FIRST = PageRequest(size=50, order="name")
OUTSIDER = replace(ADMINISTRATOR, project="default")


@pytest.fixture
def used(database: Database) -> Database:
    """`gpu-1`: used by `vision`, half used by `default`, out of service, free; `gpu-2`: drained, with one device."""
    with database.write() as session:
        make_project(session, "vision")
        node = make_node(session, "gpu-1", devices=4, device_type="h100")
        make_node(session, "gpu-2", devices=1, device_type="h100", state="drained")
        whole = make_job(session, state=JobState.TRAINING, project="vision")
        make_attempt(session, whole, node, device_indices=(0,))
        half = make_job(session, state=JobState.TRAINING)
        make_attempt(session, half, node, device_indices=(1,), share=50)
        now = utc_now()
        session.add(StuckDevice(node="gpu-1", device_index=2, job_id="gone", attempt=1, since=now, seen_at=now))
    return database


def test_devices_tell_their_state_and_who_uses_them(used: Database) -> None:
    with used.read() as session:
        devices = device_grid.page(session, ADMINISTRATOR, FIRST).items[0].devices

    assert [device.state for device in devices] == ["used", "part", "out", "free"]
    assert [device.projects for device in devices] == [["vision"], ["default"], [], []]
    assert devices[1].holders[0].share == 0.5


def test_of_jobs_of_other_projects_only_the_use_is_told(used: Database) -> None:
    with used.read() as session:
        devices = device_grid.find(session, OUTSIDER, "gpu-1").devices

    assert [device.projects for device in devices] == [[None], ["default"], [], []]
    assert (devices[0].holders[0].job_id, devices[0].holders[0].job_name) == (None, None)


def test_types_are_added_up_without_listing_nodes(used: Database) -> None:
    with used.read() as session:
        assert device_grid.by_state(session) == {"ready": 1, "drained": 1}
        assert [vars(each) for each in device_grid.by_type(session)] == [
            {"type": "h100", "total": 5, "used": 1, "part": 1, "out": 1, "free": 1, "idle": 1}
        ]
    with used.write() as session:
        session.execute(update(Node).values(state="ready"))
    with used.read() as session:
        assert device_grid.by_type(session)[0].free == 2
