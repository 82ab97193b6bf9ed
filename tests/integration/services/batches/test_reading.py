"""Files of batches that are validated slice by slice are read once, and no further than they may be."""

import gzip
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from app.domain.errors import NotFound
from app.services.batches import reading, stepping, validating
from app.services.batches.content import StepInterrupted
from app.services.batches.reading import LineReader, Reading
from app.storage.object_keys import user_file_key
from tests.builders.batch_runs import BatchRun, lines_of, request
from tests.systems.apps import Api


@pytest.fixture(autouse=True)
def _one_line_a_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validating, "SLICE_SECONDS", 0.0)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows with each line that is read."""
    numbers: list[int] = []
    real = LineReader.read

    def noted(opened: LineReader) -> Any:
        numbers.append(opened.lines_read)
        return real(opened)

    monkeypatch.setattr(LineReader, "read", noted)
    return numbers


def step(run: BatchRun, kept: Reading) -> bool:
    return stepping.step(run.plane, run.id, run.check, lambda: True, kept)


def validate(run: BatchRun, kept: Reading) -> None:
    while run.status == "validating":
        step(run, kept)


def test_each_line_is_read_once(sqlite_api: Api, read: list[int]) -> None:
    run = BatchRun(sqlite_api, gzip.compress(lines_of([request(str(i)) for i in range(20)])))
    validate(run, Reading())
    assert run.status == "in_progress"
    assert read == list(range(21))  # the last one finds the end


def test_another_coordinator_continues_where_the_row_says_and_asks_whether_it_may(
    sqlite_api: Api, read: list[int]
) -> None:
    run = BatchRun(sqlite_api, [request(str(i)) for i in range(5)])
    first, second = Reading(), Reading()
    for kept in (first, second, first):
        step(run, kept)
    assert run.batch().checked_lines == 3
    read.clear()
    with pytest.raises(StepInterrupted):
        stepping.step(run.plane, run.id, run.check, lambda: False, Reading())
    assert read == []
    validate(run, first)
    assert run.batch().total == 5


@pytest.mark.parametrize("slice_seconds", [0.0, 10.0])
def test_requests_of_more_bytes_than_a_batch_has_are_refused_however_they_are_packed(
    sqlite_api: Api, monkeypatch: pytest.MonkeyPatch, slice_seconds: float
) -> None:
    content = lines_of([request(str(i)) for i in range(9)])
    monkeypatch.setattr(validating, "SLICE_SECONDS", slice_seconds)
    monkeypatch.setattr(validating, "MOST_BYTES", len(content))
    fits = BatchRun(sqlite_api, gzip.compress(content))
    validate(fits, Reading())
    assert fits.status == "in_progress"
    large = BatchRun(sqlite_api, gzip.compress(content + lines_of([request("one more")])))
    validate(large, Reading())
    assert [each["code"] for each in large.batch().problems] == ["file_too_large"]
    assert large.batch().checked_lines == 10


def test_a_file_that_could_not_be_read_is_read_from_the_start(sqlite_api: Api, tmp_path: Path) -> None:
    run, kept = BatchRun(sqlite_api, [request("a"), request("b")]), Reading()
    stored = run.plane.storage.local_path(user_file_key("default", run.file_id))
    assert stored is not None
    stored.rename(tmp_path / "away")
    for _ in range(2):
        with pytest.raises(NotFound):
            step(run, kept)
    (tmp_path / "away").rename(stored)
    validate(run, kept)
    assert (run.status, run.batch().total) == ("in_progress", 2)


def test_a_line_whose_check_fails_is_checked_again(sqlite_api: Api) -> None:
    failures = [OSError("no memory")]

    def check(_endpoint: str, _body: Mapping[str, Any]) -> Sequence[tuple[str, str, str]]:
        if failures:
            raise failures.pop()
        return []

    run, kept = BatchRun(sqlite_api, [request("a"), request("b")], check=check), Reading()
    stepping.step_all(run.plane, [run.id], run.check, lambda: True, kept)
    assert run.batch().pending_reason == stepping.FAULT
    validate(run, kept)
    assert (run.status, run.batch().total, run.batch().pending_reason) == ("in_progress", 2, "")


def test_few_files_are_open_at_a_time_and_all_are_validated(sqlite_api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MOST_OPEN", 1)
    runs, kept = [BatchRun(sqlite_api, [request("a"), request("b")]) for _ in range(3)], Reading()
    assert [step(run, kept) for run in runs] == [True] * 3
    assert [run.batch().checked_lines for run in runs] == [1, 0, 0]
    kept.close_but([run.id for run in runs[1:]])  # the first one was cancelled
    assert step(runs[1], kept) is True
    assert runs[1].batch().checked_lines == 1
    for run in runs[1:]:
        validate(run, kept)
