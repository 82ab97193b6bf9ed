"""What keys have asked of models is added up, and shown by day, model and key."""

from datetime import date
from typing import Any

import pytest

from app.database.engine import Database
from app.domain.errors import NotFound
from app.security.permissions import Caller, Role
from app.services.requests.pagination import PageRequest
from app.services.serving import usage
from app.services.serving.usage import UsageCounts, UsageKey, UsageRow
from tests.builders.factories import make_project

pytestmark = pytest.mark.both_databases
MONDAY, TUESDAY = date(2026, 11, 23), date(2026, 11, 24)
VIEWER = Caller(key_id="key-1", role=Role.VIEWER, project="default")
ADMIN = Caller(key_id="key-9", role=Role.SUPER_ADMIN, project=None)


def key(day: date = MONDAY, key_id: str = "key-1", model: str = "tiny", **more: str) -> UsageKey:
    return UsageKey(
        **{"day": day, "key_id": key_id, "model": model, "project": "default", "service_id": "service-1", **more}  # type: ignore[arg-type]
    )


def counts(requests: int, failures: int = 0) -> UsageCounts:
    return UsageCounts(
        requests=requests, failures=failures, prompt_tokens=10 * requests, completion_tokens=2 * requests
    )


def shown(database: Database, caller: Caller = VIEWER, *, size: int = 20, **filters: Any) -> list[UsageRow]:
    """All pages."""
    found: list[UsageRow] = []
    after: tuple[Any, ...] | None = None
    with database.read() as session:
        while True:
            page = usage.page(session, caller, filters, PageRequest(size=size, order="-day", after=after))
            found += page.items
            after = page.next_after
            if after is None:
                assert page.total_count == len(found)
                return found


@pytest.fixture
def used(database: Database) -> Database:
    with database.write() as session:
        make_project(session)
        make_project(session, "other")
    usage.add(database, {key(): counts(2), key(service_id="service-2"): counts(1, 1), key(TUESDAY): counts(4)})
    usage.add(database, {key(): counts(10), key(key_id="key-2", model="big"): counts(5)})
    usage.add(database, {key(project="other"): counts(100)})
    return database


def test_counts_are_added_to_those_before(used: Database) -> None:
    (row,) = shown(used)

    assert row == UsageRow(
        project="default",
        day=None,
        model=None,
        key_id=None,
        requests=22,
        failures=1,
        prompt_tokens=220,
        completion_tokens=44,
    )


@pytest.mark.parametrize("size", [1, 2, 20])
def test_groups_are_shown_page_by_page(used: Database, size: int) -> None:
    rows = shown(used, group=["key", "day", "model"], size=size)

    assert [(row.day, row.model, row.key_id, row.requests) for row in rows] == [
        (TUESDAY, "tiny", "key-1", 4),
        (MONDAY, "tiny", "key-1", 13),
        (MONDAY, "big", "key-2", 5),
    ]
    assert [(row.model, row.requests) for row in shown(used, group=["model"], size=size)] == [("tiny", 17), ("big", 5)]


def test_days_and_projects_are_filters(used: Database) -> None:
    assert [row.requests for row in shown(used, since=TUESDAY)] == [4]
    assert [row.requests for row in shown(used, until=MONDAY)] == [18]
    assert {row.project: row.requests for row in shown(used, ADMIN)} == {"default": 22, "other": 100}
    assert [row.requests for row in shown(used, ADMIN, project="other")] == [100]
    with pytest.raises(NotFound):
        shown(used, project="other")


def test_nothing_to_add_writes_nothing(database: Database) -> None:
    usage.add(database, {})

    assert shown(database) == []


@pytest.mark.parametrize(
    "bad", [{key(model="huge"): UsageCounts(requests=1, prompt_tokens=10**30)}, {key(model="a\0b\ud800"): counts(1)}]
)
def test_row_that_cannot_be_written_is_dropped_and_others_are_written(
    used: Database, bad: dict[UsageKey, UsageCounts], caplog: pytest.LogCaptureFixture
) -> None:
    usage.add(used, {key(): counts(1), **bad, key(model="big"): counts(2)})

    assert {row.model: row.requests for row in shown(used, group=["model"])} == {"tiny": 18, "big": 7}
    assert "usage of key key-1 is dropped" in caplog.text
