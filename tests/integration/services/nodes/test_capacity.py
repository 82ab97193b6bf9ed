"""The inventory of devices is cached for a moment; a cached inventory never refuses a job."""

import pytest

from app.database.engine import Database
from app.domain.errors import CannotFit
from app.domain.spec.model import JobDocument, SchedulingConfig
from app.services.nodes.capacity import ClusterInventory
from tests.builders.factories import make_document, make_node
from tests.builders.statements import statements

pytestmark = pytest.mark.both_databases

SMALL = JobDocument.from_json(make_document(resource_config={"gpu_count": 1, "device_type": "cpu"}))
LARGE = JobDocument.from_json(make_document(resource_config={"gpu_count": 8, "device_type": "cpu"}))


def register(database: Database, name: str, devices: int) -> None:
    with database.write() as session:
        make_node(session, name, devices=devices)


def test_nodes_are_read_once_a_second(database: Database) -> None:
    register(database, "n1", 2)
    now = [10.0]
    inventory = ClusterInventory(clock=lambda: now[0])

    with database.read() as session, statements(database) as sent:
        inventory.request(session, SMALL, "default")
        first = len(sent)
        inventory.request(session, SMALL, "default")
        assert len(sent) == first
        now[0] += 1.1
        inventory.request(session, SMALL, "default")

    assert len(sent) == 2 * first > 0


def test_a_node_that_has_just_come_counts_at_once(database: Database) -> None:
    register(database, "n1", 2)
    inventory = ClusterInventory(clock=lambda: 10.0)
    with database.read() as session:
        inventory.request(session, SMALL, "default")
    register(database, "n2", 8)

    with database.read() as session:
        request = inventory.request(session, LARGE, "default")

    assert request.device_count == 8


def test_what_no_node_can_hold_is_refused_again_and_again(database: Database) -> None:
    register(database, "n1", 2)
    inventory = ClusterInventory(clock=lambda: 10.0)

    for _ in range(2):
        with database.read() as session, pytest.raises(CannotFit, match="would fit is 2"):
            inventory.request(session, LARGE, "default")


def test_what_is_to_wait_is_not_refused(database: Database) -> None:
    register(database, "n1", 2)
    inventory = ClusterInventory(clock=lambda: 10.0)
    waits = LARGE.changed(scheduling_config=SchedulingConfig(wait_for_node=True))

    with database.read() as session:
        request, unfit = inventory.request_that_waits(session, waits, "default")
        with pytest.raises(CannotFit):
            inventory.request_that_waits(session, LARGE, "default")
        assert inventory.request_that_waits(session, SMALL, "default")[1] is None

    assert request.device_count == 8
    assert unfit is not None
    assert unfit.field == "resource_config.gpu_count"
