"""Files of an output directory that is not stored: they are counted, and whatever ranks left there ends well."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from app.domain.errors import LeaseLost
from app.domain.lifecycle.outcomes import Outcome
from workers.supervisor import finalize
from workers.supervisor.finished_attempt import FinishedAttempt
from workers.supervisor.recording.model_export import MOST_ENTRIES, left_files


def test_files_are_counted_without_notes_at_the_top_and_what_lies_behind_links(tmp_path: Path) -> None:
    output, other = tmp_path / "output", tmp_path / "other"
    for path in (output / ".notes/a", output / ".note", output / "b", output / "c/.d", other / "e"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (output / "link").symlink_to(other)

    assert left_files(output, most=10) == (3, False)  # b, c/.d and the link itself
    assert left_files(output, most=2) == (2, True)
    (tmp_path / "output-link").symlink_to(output)
    assert [left_files(tmp_path / name, most=10) for name in ("output-link", "missing")] == [(0, False)] * 2


@pytest.mark.long
def test_deep_directories_are_counted_to_their_end(tmp_path: Path) -> None:
    deepest = sys.getrecursionlimit() + 100
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(deepest):
        os.mkdir("d", dir_fd=here)
        here = moved(here, "d")
    os.mkfifo("file", dir_fd=here)

    found = left_files(tmp_path, most=1000)

    os.unlink("file", dir_fd=here)
    for _ in range(deepest):  # too deep for pytest, which would fail
        here = moved(here, "..")
        os.rmdir("d", dir_fd=here)
    os.close(here)
    assert found == (1, False)


def moved(here: int, to: str) -> int:
    found = os.open(to, os.O_RDONLY, dir_fd=here)
    os.close(here)
    return found


def test_directories_alone_have_a_limit(tmp_path: Path) -> None:
    for number in range(MOST_ENTRIES + 1):
        (tmp_path / str(number)).mkdir()

    assert left_files(tmp_path, most=1) == (0, True)
    assert left_files(tmp_path, most=2) == (0, False)


def test_good_attempt_does_not_fail_because_they_can_not_be_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    context = SimpleNamespace(run=SimpleNamespace(output=Path("/nowhere")))
    work = SimpleNamespace(part=1, is_training=True)
    attempt = cast("FinishedAttempt", SimpleNamespace(work=work, context=context))
    raised: list[Exception] = [RecursionError(), LeaseLost("gone")]

    def count(_: Path, *, most: int) -> tuple[int, bool]:
        raise raised.pop(0)

    monkeypatch.setattr(finalize, "left_files", count)

    finalize._say_what_is_lost(attempt, Outcome(kind="completed"))
    with pytest.raises(LeaseLost):
        finalize._say_what_is_lost(attempt, Outcome(kind="completed"))
    assert not raised
