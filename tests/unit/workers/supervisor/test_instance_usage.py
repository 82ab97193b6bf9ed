"""What instances have used is written now and then while they run, and never after their ends were written."""

from collections.abc import Mapping
from typing import Any

import pytest

from app.services.attempts import work_instances
from tests.unit.workers.prepare.test_role_programs import order
from workers.supervisor.ranks import instance_usage
from workers.supervisor.ranks.instance_usage import InstanceUsage, Totals
from workers.supervisor.ranks.role_progress import RoleProgress

KEY = ("trainer", 0)


def test_totals_are_told_when_they_change_and_not_too_often(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Totals] = []
    usage = InstanceUsage({0: KEY}, told.append)
    usage._tell_if_due()  # nothing was seen yet
    usage._peak_bytes[KEY] = 1 << 20

    for seconds in (1.0, 2.0):
        usage._seconds[KEY, 7] = seconds
        usage._tell_if_due()
    monkeypatch.setattr(instance_usage, "TELL_SECONDS", 0.0)
    usage._tell_if_due()
    usage._tell_if_due()

    assert [each[KEY]["cpu_seconds"] for each in told] == [1.0, 2.0]


def test_nothing_is_told_after_the_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Mapping[Any, Any]] = []
    monkeypatch.setattr(work_instances, "record", lambda *values: written.append(values[-1]))
    roles = RoleProgress(
        None,  # type: ignore[arg-type]  # the writing is replaced
        order(),
        send=lambda _: None,
        note=lambda _: None,
        on_restart=lambda _: None,
        on_leader_left=lambda: None,
        grace_seconds=1,
    )

    roles._record_usage({KEY: {"cpu_seconds": 1.0}})
    roles.record_ends()
    roles._record_usage({KEY: {"cpu_seconds": 2.0}})

    assert written == [{KEY: {"cpu_seconds": 1.0}}, {KEY: {}, ("helper", 0): {}}]
