"""A long call of the engine shows the watchdog that it advances."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.workers.trainers.inference.runs import RecordingSession, make_spec, run, write_lines
from trainyard.protocol.messages import Progress
from workers.trainers.inference import advancing
from workers.trainers.inference.advancing import Advancing
from workers.trainers.inference.shard_claims import Claims


class CountingSession(RecordingSession):
    """Keeps the tokens that are reported."""

    tokens: list[int | None]

    def progress(self, progress: Progress) -> None:
        self.tokens = [*getattr(self, "tokens", []), progress.tokens]
        super().progress(progress)


@pytest.fixture
def seconds() -> Iterator[float]:
    """Readings of a clock, two seconds apart."""
    return iter(range(0, 1000, 2))


def test_steps_are_reported_now_and_then(seconds: Iterator[float]) -> None:
    reports: list[int] = []
    interrupted = Advancing(lambda: len(reports) == 3, reports.append, lambda: next(seconds))

    asked = 0
    while not interrupted():
        asked += 1

    assert reports == sorted(set(reports))
    assert 3 < reports[-1] == asked + 1


def test_tokens_of_a_running_shard_are_reported_beside_those_of_finished_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(advancing, "_REPORT_SECONDS", 0.0)
    data = write_lines(tmp_path / "prompts.jsonl", ({"prompt": f"w{i}"} for i in range(4)))
    spec = make_spec(tmp_path, data, {"task": {"max_new_tokens": 4}, "output": {"shard_records": 2}})
    session = CountingSession(spec)

    run(spec, session)

    assert session.steps == [(0, 4), (0, 4), (2, 4), (2, 4), (4, 4)]
    assert session.tokens == [0, 1, 6, 7, 12]


def test_rank_0_sees_that_another_rank_advances(tmp_path: Path) -> None:
    leads, follows = Claims(tmp_path), Claims(tmp_path)
    assert not leads.advanced()

    follows.advance(1)

    assert [leads.advanced(), leads.advanced(), leads.advances] == [True, False, 1]
