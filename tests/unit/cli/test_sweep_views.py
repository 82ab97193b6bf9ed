"""What a followed sweep writes to a terminal."""

import re
from typing import Any, cast

import pytest

from app.cli.client.sweeps.views import Snapshot, SweepLineView, TableView
from tests.builders.sweep_answers import report, sweep, trial
from trainyard.records import Sweep, Trial

HOSTILE = "\x1b]0;title\x07bad\x1b[2Jtext"
# What redraws the table: the cursor is hidden and shown, lines are erased, the cursor moves up.
REDRAWING = re.compile(r"\x1b\[(?:\?25[lh]|2K|1A|[\d;]*m)")


def snapshot(answer: dict[str, Any], *trials: dict[str, Any]) -> Snapshot:
    return Snapshot(cast("Sweep", answer), cast("list[Trial]", list(trials)))


def on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not as a fixture: each phase of a test has a standard output of its own."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    for name, value in {"COLUMNS": "160", "LINES": "30", "TERM": "xterm"}.items():
        monkeypatch.setenv(name, value)


def test_table_is_redrawn_in_place(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    on_a_terminal(monkeypatch)
    view = TableView()

    view.show(snapshot(sweep("PENDING", pending_reason="no device is free")))
    view.show(snapshot(sweep(trials_by_state={"RUNNING": 1}), trial(0, step=412, reports=[report(100, 1.498, 1, 2)])))
    view.say("the server is away")
    view.close()

    written = capsys.readouterr().out
    lines = REDRAWING.sub("", written.replace("\r", "")).splitlines()
    assert lines[-2].split() == [
        *("#", "state", "learning_rate", "batch_size", "lr_scheduler_type", "warmup_ratio", "eval_loss", "step"),
        "rung",
    ]
    assert lines[-1].split() == [
        "0",
        "running",
        "2.1e-4",
        "16",
        "linear",
        "–",
        "1.498",
        "412/900",
        *("1", "of", "2", "at", "100"),
    ]
    assert "the server is away" in written
    assert "\x1b[1A" in written


@pytest.mark.parametrize("view", [TableView, SweepLineView])
def test_texts_of_jobs_send_nothing_to_the_terminal(
    view: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    on_a_terminal(monkeypatch)
    shown = view()

    shown.show(snapshot(sweep(name=HOSTILE, pending_reason=HOSTILE), trial(0, values={"learning_rate": HOSTILE})))
    shown.show(snapshot(sweep("FAILED", status_reason=HOSTILE), trial(0, "FAILED", reason=HOSTILE)))
    shown.say(HOSTILE)
    shown.close()

    written = capsys.readouterr().out
    assert "badtext" in written
    assert re.sub(r"[\n\r]", "", REDRAWING.sub("", written)).isprintable()


def test_lines_are_written_once(capsys: pytest.CaptureFixture[str]) -> None:
    view, running = SweepLineView(), snapshot(sweep(trials_by_state={"RUNNING": 1}), trial(0, step=5))

    for _ in range(3):
        view.show(running)
    view.show(
        snapshot(sweep(trials_by_state={"COMPLETED": 1}), trial(0, "COMPLETED", objectives=[2.0], is_feasible=False))
    )

    lines = [line.partition("  ")[2] for line in capsys.readouterr().out.splitlines()]
    assert [line.partition(":")[0] for line in lines[1:]] == ["#0 started", "#0 done"]
    assert lines[-1] == "#0 done: eval_loss 2 (breaks a constraint)"


def test_a_report_that_is_not_finite_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    view = SweepLineView()

    view.show(snapshot(sweep(), trial(0, reports=[report(100, None, 3, 3, continues=False)])))

    assert "#0 at 100: eval_loss not finite, 3 of 3" in capsys.readouterr().out
