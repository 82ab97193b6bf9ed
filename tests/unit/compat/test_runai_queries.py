"""How Run:ai's clients choose among workloads, and order them."""

import pytest

from app.compat.runai.queries import chosen, ordered
from app.domain.errors import InvalidRequest

ROWS = [
    {"name": "a-1", "phase": "Running", "totalRunningTimeSeconds": 9, "completedAt": None, "createdAt": "2026-01-02"},
    {"name": "b-1", "phase": "Failed", "totalRunningTimeSeconds": 100, "completedAt": "2026-02-01",
     "createdAt": "2026-01-01"},
]  # fmt: skip


@pytest.mark.parametrize(
    ("condition", "names"),
    [
        ("phase==Running", ["a-1"]), ("phase!=Running", ["b-1"]), ("name=@-1", ["a-1", "b-1"]), ("name!@a", ["b-1"]),
        ("name=^b", ["b-1"]), ("name=$-1", ["a-1", "b-1"]), ("totalRunningTimeSeconds>=10", ["b-1"]),
        ("totalRunningTimeSeconds<=9.5", ["a-1"]), ("completedAt>=2026-01-15", ["b-1"]), ("completedAt==x", []),
        ("totalRunningTimeSeconds>=many", []),
    ],
)  # fmt: skip
def test_conditions(condition, names):
    found = chosen(ROWS, {"filterBy": [condition], "search": "", "deleted": False})

    assert [row["name"] for row in found] == names


@pytest.mark.parametrize("condition", ["phase", "colour==x", "phase=Running"])
def test_condition_that_is_none_is_refused(condition):
    with pytest.raises(InvalidRequest, match="no condition such as"):
        chosen(ROWS, {"filterBy": [condition], "search": "", "deleted": False})


def test_rows_without_a_value_come_first():
    assert [row["name"] for row in ordered(ROWS, {"sortBy": "completedAt"})] == ["a-1", "b-1"]
    assert [row["name"] for row in ordered(ROWS, {"sortOrder": "asc"})] == ["b-1", "a-1"]
    assert [row["name"] for row in ordered(ROWS, {})] == ["a-1", "b-1"]
