"""How Run:ai's clients choose among workloads, and order them."""

import dataclasses
from datetime import UTC, datetime
from itertools import product
from typing import Any

import pytest

from app.compat.runai.from_native import STATES_OF_PHASES, is_deleted, phase_of
from app.compat.runai.queries import chosen, conditions, narrowed, native_order, ordered
from app.compat.runai.to_native import DIALECT
from app.domain.errors import InvalidRequest
from app.domain.lifecycle.states import TERMINAL, JobState
from app.models import Job
from app.models.base import utc_now
from app.services.jobs.details import JobDetails

ROWS = [
    {"name": "a-1", "phase": "Running", "totalRunningTimeSeconds": 9, "completedAt": None, "createdAt": "2026-01-02"},
    {
        "name": "b-1",
        "phase": "Failed",
        "totalRunningTimeSeconds": 100,
        "completedAt": "2026-02-01",
        "createdAt": "2026-01-01",
    },
]
STATES = {"Running": [JobState.TRAINING], "Failed": [JobState.FAILED]}


@pytest.mark.parametrize(
    ("condition", "names"),
    [
        ("phase==Running", ["a-1"]),
        ("phase!=Running", ["b-1"]),
        ("name=@-1", ["a-1", "b-1"]),
        ("name!@a", ["b-1"]),
        ("name=^b", ["b-1"]),
        ("name=$-1", ["a-1", "b-1"]),
        ("totalRunningTimeSeconds>=10", ["b-1"]),
        ("totalRunningTimeSeconds<=9.5", ["a-1"]),
        ("completedAt>=2026-01-15", ["b-1"]),
        ("completedAt==x", []),
        ("completedAt>=2026-02-01T02:00:00 02:00", []),
        ("completedAt<=2026-02-01T00:00:00.001Z", ["b-1"]),
        ("phase<=G", ["b-1"]),
    ],
)
def test_conditions_choose_workloads(condition, names):
    found = chosen(ROWS, conditions([condition]), "")

    assert [row["name"] for row in found] == names


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("phase", "not a condition such as"),
        ("colour==x", "not a condition such as"),
        ("phase=Running", "not a condition such as"),
        ("totalRunningTimeSeconds>=many", "a number of seconds, not 'many'"),
        ("createdAt<=yesterday", "a time such as .*, not 'yesterday'"),
        ("createdAt<=9999-12-31T23:00:00-02:00", "a time such as"),
    ],
)
def test_invalid_condition_is_refused(condition, said):
    with pytest.raises(InvalidRequest, match=said):
        conditions([condition])


@pytest.mark.parametrize(
    ("asked", "search", "filters"),
    [
        (["phase==Failed"], "", {"status": [JobState.FAILED]}),
        (["phase==Burning"], "", {"status": ()}),
        (["phase!=Failed", "name=$x", "type==Training", "createdAt==x"], "", {}),
        (["name=@a", "projectId==p", "submittedBy==Ada"], "", {"name_contains": ["a"], "project": "p"}),
        (["name=@a", "name==b"], "c", {"name_contains": ["c"], "name": "b"}),
        (
            ["createdAt>=2026-01-02", "createdAt<=2026-01-03T00:00:00Z"],
            "",
            {
                "created_after": datetime(2026, 1, 1, 23, 59, 59, 999_000, UTC),
                "created_before": datetime(2026, 1, 3, 0, 0, 0, 1000, UTC),
            },
        ),
        (["createdAt>=0001-01-01"], "", {"created_after": datetime(1970, 1, 1, tzinfo=UTC)}),
    ],
)
def test_database_is_asked_for_what_it_can_tell(asked, search, filters):
    assert narrowed(conditions(asked), search, STATES) == filters


@pytest.mark.parametrize("state", JobState)
def test_phase_is_looked_for_where_it_may_be(state):
    shown: dict[str, Any] = {field.name: None for field in dataclasses.fields(JobDetails)}
    for foreign, requested, attempt in product(({}, {"deleted": True}), (None, "pause", "cancel"), (0, 2)):
        job = Job(status=state, attempt=attempt, foreign={DIALECT: foreign})
        found = JobDetails(**{**shown, "job": job, "requested": None if state in TERMINAL else requested})

        if not is_deleted(found, utc_now()):
            assert state in STATES_OF_PHASES[phase_of(found)], (foreign, requested, attempt)


def test_rows_without_a_value_come_first():
    assert [row["name"] for row in ordered(ROWS[::-1], {"sortBy": "completedAt"})] == ["a-1", "b-1"]
    assert [row["name"] for row in ordered(ROWS, {"sortBy": "phase"})] == ["b-1", "a-1"]
    assert [row["name"] for row in ordered(ROWS, {"sortBy": "phase", "sortOrder": "desc"})] == ["a-1", "b-1"]


@pytest.mark.parametrize(
    ("query", "order"),
    [
        ({}, "-created_at"),
        ({"sortOrder": "asc"}, "created_at"),
        ({"sortBy": "name"}, "name"),
        ({"sortBy": "createdAt", "sortOrder": "desc"}, "-created_at"),
        ({"sortBy": "phase"}, None),
    ],
)
def test_order_that_the_database_has(query, order):
    assert native_order(query) == order
    assert order is None or ordered(ROWS, query) is ROWS
