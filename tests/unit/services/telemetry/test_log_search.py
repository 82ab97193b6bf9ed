"""Searching a log: what matches, how much one request does, and where the next one continues."""

import time
import uuid
from datetime import UTC, datetime

import pytest

from app.domain.errors import InvalidRequest
from app.services.telemetry import log_pages
from app.services.telemetry.log_search import FoundLines, SearchBudget, WantedLines, search
from app.storage.log_writer import LogWriter
from app.storage.logs import START, Cursor
from app.storage.storage import Storage
from tests.builders.log_blocks import block

JOB = "job-1"


def at(minute: int) -> str:
    return f"2030-01-01T00:{minute:02}:00.000Z"


@pytest.fixture
def storage() -> Storage:
    return Storage(f"memory://{uuid.uuid4().hex}")


def found(storage: Storage, after: Cursor = START, **wanted: object) -> FoundLines:
    limits = {name: wanted.pop(name) for name in ("limit", "most") if name in wanted}
    return search(storage, JOB, WantedLines(**wanted), after, live=False, **limits)  # type: ignore[arg-type]


def texts(result: FoundLines) -> list[str]:
    return [line.line for line in result.lines]


def test_text_matches_in_any_case_and_a_pattern_as_it_is_written(storage: Storage):
    LogWriter(storage, JOB, 1).append([block(1, "Loss is NaN", "all is well", "loss=3")])

    assert texts(found(storage, text="LOSS")) == ["Loss is NaN", "loss=3"]
    assert texts(found(storage, pattern=r"loss=\d$")) == ["loss=3"]
    assert texts(found(storage, pattern="(?i)LOSS=")) == ["loss=3"]
    assert texts(found(storage, text="loss", pattern="NaN")) == ["Loss is NaN"]
    assert texts(found(storage)) == ["Loss is NaN", "all is well", "loss=3"]


def test_lines_of_a_time_a_rank_and_an_attempt_are_found(storage: Storage):
    LogWriter(storage, JOB, 1).append(
        [block(1, "a", at=at(1)), block(2, "b", at=at(2), rank=1), block(3, "c", at=at(3))]
    )
    LogWriter(storage, JOB, 2).append([block(1, "d", at=at(9))])
    second = datetime(2030, 1, 1, 0, 2, tzinfo=UTC)

    assert texts(found(storage, since=second)) == ["b", "c", "d"]
    assert texts(found(storage, until=second)) == ["a", "b"]
    assert texts(found(storage, since=second, until=second)) == ["b"]
    assert texts(found(storage, rank=1)) == ["b"]
    assert texts(found(storage, attempt=1)) == ["a", "b", "c"]


def test_a_search_in_parts_finds_each_line_once(storage: Storage):
    writer = LogWriter(storage, JOB, 1)
    for first in range(1, 100, 3):
        writer.append([block(first, *(f"line {n}" for n in range(first, first + 3)), rank=first % 2)])
    LogWriter(storage, JOB, 2).append([block(1, "line 7 again")])
    lines: list[str] = []
    searched, parts = 0, 0
    after: Cursor | None = START

    while after is not None:  # in parts of 10 lines, of which at most two may match
        part = found(storage, after, text="7", limit=2, most=SearchBudget(lines=10))
        lines, searched, after, parts = [*lines, *texts(part)], searched + part.searched, part.after, parts + 1

    assert lines == [*(f"line {n}" for n in range(1, 100) if "7" in str(n)), "line 7 again"]
    assert searched == 100
    assert parts > 10


def test_lines_of_several_nodes_are_searched_in_parts(storage: Storage):
    for node in (1, 2):
        blocks = [block(node + 2 * turn, f"node {node} turn {turn}", rank=node - 1, step=2) for turn in range(9)]
        LogWriter(storage, JOB, 1).append(blocks)
    lines: list[str] = []
    after: Cursor | None = START

    while after is not None:
        part = found(storage, after, most=SearchBudget(lines=4))
        lines, after = [*lines, *texts(part)], part.after

    assert lines == [f"node {node} turn {turn}" for turn in range(9) for node in (1, 2)]


def test_lines_that_are_no_text_can_be_searched(storage: Storage):
    LogWriter(storage, JOB, 1).append([block(1, "lone \ud800 surrogate", "ü")])

    assert len(found(storage, pattern="surrogate$").lines) == 1
    assert texts(found(storage, pattern="^ü$")) == ["ü"]


@pytest.mark.parametrize("pattern", ["(", "a(?=b)", r"(a)\1", "x{2000}", "x" * 501, "(?:.?){1000}" * 31 + "q"])
def test_a_pattern_that_is_none_is_refused(storage: Storage, pattern: str):
    with pytest.raises(InvalidRequest) as refused:
        found(storage, pattern=pattern)

    assert refused.value.field == "pattern"


@pytest.mark.parametrize("pattern", ["(?:.?){1000}q", r"(?i)error.*(timeout|refused)", r"\pL+ .{0,80}nan"])
def test_usual_patterns_are_not_too_large(storage: Storage, pattern: str):
    assert found(storage, pattern=pattern).lines == []


def test_a_slow_pattern_ends_after_its_time_with_a_cursor_to_continue(storage: Storage):
    LogWriter(storage, JOB, 1).append([block(1 + 20 * turn, *["a" * 8000] * 20) for turn in range(10)])

    before = time.monotonic()
    part = found(storage, pattern="(?:.?){1000}q", most=SearchBudget(seconds=0.3))

    assert time.monotonic() - before < 5  # whole it takes about half a minute
    assert 0 < part.searched < 200
    assert part.after == (1, part.searched)


def test_each_request_gets_on_and_none_loses_a_line(storage: Storage):
    for node in (1, 2):
        blocks = [block(node + 6 * turn, "a", "match", "b", rank=node - 1, step=2) for turn in range(3)]
        LogWriter(storage, JOB, 1).append(blocks)
    lines: list[str] = []
    after: Cursor | None = START
    parts = 0

    while after is not None and parts < 30:
        part = found(storage, after, pattern="match", most=SearchBudget(seconds=0))
        lines, after, parts = [*lines, *(f"{line.rank}:{line.n}" for line in part.lines)], part.after, parts + 1

    assert sorted(lines) == sorted(f"{node - 1}:{node + 6 * turn + 2}" for turn in range(3) for node in (1, 2))
    assert parts == 19


def test_pages_are_the_lines_of_these_numbers(storage: Storage):
    LogWriter(storage, JOB, 1).append([block(1, "old")])
    LogWriter(storage, JOB, 3).append([block(1, "a", "b", rank=0), block(3, "c", "d", rank=1), block(5, "e", rank=0)])

    outline = log_pages.outline(storage, JOB)
    of_rank = log_pages.outline(storage, JOB, attempt=3, rank=1)
    lines = log_pages.lines_between(storage, JOB, 3, 2, 3, live=False)
    lines_of_rank = log_pages.lines_between(storage, JOB, 3, 1, 4, rank=0, live=False)

    assert (outline.attempts, outline.attempt, outline.ranks, outline.last) == ([1, 3], 3, [0, 1], 5)
    assert of_rank.last == 4
    assert [line.line for line in lines] == ["b", "c"]
    assert [line.line for line in lines_of_rank] == ["a", "b"]


def test_a_job_without_lines_has_an_empty_outline(storage: Storage):
    assert log_pages.outline(storage, JOB).last == 0
    assert log_pages.outline(storage, JOB, attempt=4).attempt == 4
    assert log_pages.lines_between(storage, JOB, 1, 1, 10, live=True) == []


def test_the_text_has_times_and_ranks(storage: Storage):
    LogWriter(storage, JOB, 1).append([block(1, "a", "b", at=at(1)), block(3, "c", rank=7, at=at(2))])

    text = "".join(log_pages.as_text(storage, JOB))

    assert text == f"{at(1)} [0] a\n{at(1)} [0] b\n{at(2)} [7] c\n"
