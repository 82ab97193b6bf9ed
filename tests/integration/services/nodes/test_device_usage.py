"""Samples of nodes and their devices: one a minute, for a day."""

from datetime import datetime, timedelta

import pytest

from app.database.engine import Database
from app.domain.errors import NotFound
from app.models import Node
from app.models.base import utc_now
from app.services.nodes import device_usage
from app.services.nodes.device_usage import DeviceUse, NodeUse
from tests.builders.factories import make_node

pytestmark = pytest.mark.both_databases


def use(at: datetime, utilization: float | None = 50.0) -> NodeUse:
    devices = [DeviceUse(index=0, utilization=utilization, memory_used_mb=1000)]
    return NodeUse(at=at, cpu_percent=12.5, ram_used_mb=900, devices=devices)


def test_samples_are_kept_by_the_minute_and_the_newest_is_current(database: Database) -> None:
    now = utc_now().replace(second=30, microsecond=0)
    with database.write() as session:
        make_node(session, "gpu-1")
        make_node(session, "gpu-2")

    for ago, utilization in ((90, 10.0), (2, 20.0), (1, 30.0), (1, None)):
        assert device_usage.record(database, "gpu-1", use(now - timedelta(minutes=ago), utilization))

    with database.read() as session:
        hour = device_usage.history(session, "gpu-1")
        assert [each.devices[0].utilization for each in hour] == [20.0, None]
        assert hour[0].at == (now - timedelta(minutes=2)).replace(second=0)
        assert len(device_usage.history(session, "gpu-1", minutes=120)) == 3
        latest = device_usage.latest(session, ["gpu-1", "gpu-2"])
    assert set(latest) == {"gpu-1"}
    assert latest["gpu-1"] == hour[-1]


def test_a_sample_of_long_ago_is_not_current_and_after_a_day_gone(database: Database) -> None:
    with database.write() as session:
        make_node(session, "gpu-1")
    device_usage.record(database, "gpu-1", use(utc_now() - timedelta(minutes=10)))
    device_usage.record(database, "gpu-1", use(utc_now() - timedelta(hours=25)))

    device_usage.drop_old(database)

    with database.read() as session:
        assert device_usage.latest(session, ["gpu-1"]) == {}
        assert len(device_usage.history(session, "gpu-1", minutes=48 * 60)) == 1


def test_samples_are_of_a_registered_node_and_go_with_it(database: Database) -> None:
    assert not device_usage.record(database, "gpu-1", use(utc_now()))
    with database.write() as session:
        make_node(session, "gpu-1")
    device_usage.record(database, "gpu-1", use(utc_now()))

    with database.write() as session:
        session.delete(session.get_one(Node, "gpu-1"))

    with database.read() as session, pytest.raises(NotFound):
        device_usage.history(session, "gpu-1")
