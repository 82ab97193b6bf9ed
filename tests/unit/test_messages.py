"""Every message of the channel, right and wrong."""

import math

import pytest

from workers.messages import (
    BadMessage,
    CheckpointReady,
    Done,
    Failure,
    Hello,
    MetricPoint,
    Phase,
    Progress,
    RankExit,
    Result,
    clean_text,
    parse,
)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"type": "hello", "rank": 1, "pid": 7, "can_checkpoint": True}, Hello(rank=1, can_checkpoint=True)),
        ({"type": "phase", "phase": "TRAINING"}, Phase("TRAINING")),
        (
            {"type": "progress", "step": 3, "total_steps": 9, "epoch": 0.5, "total_epochs": 3, "tokens": 12},
            Progress(step=3, total_steps=9, epoch=0.5, total_epochs=3.0, tokens=12),
        ),
        (
            {"type": "progress", "step": 3, "total_steps": None, "epoch": None, "total_epochs": None},
            Progress(step=3, total_steps=None, epoch=0.0, total_epochs=None, tokens=0),
        ),
        (
            {"type": "checkpoint", "step": 2, "path": "/run/checkpoints/2", "metrics": {"loss": 1}},
            CheckpointReady(step=2, path="/run/checkpoints/2", metrics={"loss": 1.0}),
        ),
        (
            {"type": "result", "stopped": None, "step": 5, "final_metrics": {}, "weight_files": ["a", "b"]},
            Result(stopped=None, step=5, tokens=0, final_metrics={}, weight_files=("a", "b")),
        ),
        (
            {"type": "error", "rank": 1, "error_type": "DATA_INVALID", "message": "row 3", "stack": "…"},
            Failure(rank=1, error_type="DATA_INVALID", message="row 3", stack="…"),
        ),
        ({"type": "done", "rank": 1}, Done(rank=1)),
        (
            {"type": "rank_exit", "rank": 0, "exit_code": 137, "signal": "SIGKILL"},
            RankExit(rank=0, exit_code=137, signal="SIGKILL"),
        ),
    ],
)
def test_good_message_becomes_a_value(message, expected):
    assert parse(message) == expected


def test_metric_values_may_be_special_numbers():
    point = parse({"type": "metric", "step": 1, "at": "2026-01-02T03:04:05.678Z", "values": {"a": "NaN", "b": 10**400}})

    assert isinstance(point, MetricPoint)
    assert math.isnan(point.values["a"])
    assert point.values["b"] == math.inf
    assert point.at.isoformat() == "2026-01-02T03:04:05.678000+00:00"


@pytest.mark.parametrize(
    "message",
    [
        {"type": "what"},
        {"type": "phase", "phase": "COMPLETED"},
        {"type": "phase"},
        {"type": "progress", "step": -1},
        {"type": "progress", "step": True},
        {"type": "progress", "step": 1.5},
        {"type": "progress", "step": 2**31},
        {"type": "progress", "step": "1"},
        {"type": "progress", "step": 1, "epoch": "NaN"},
        {"type": "metric", "step": 1, "values": {"loss": "high"}},
        {"type": "metric", "step": 1, "values": [1]},
        {"type": "metric", "step": 1, "values": {str(n): n for n in range(2000)}},
        {"type": "checkpoint", "step": 1},
        {"type": "checkpoint", "step": 1, "path": "a\0b"},
        {"type": "result", "stopped": "lunch", "step": 1},
        {"type": "result", "stopped": None, "step": 1, "weight_files": "a"},
        {"type": "result", "stopped": None, "step": 1, "weight_files": [1]},
        {"type": "hello", "rank": "zero"},
    ],
)
def test_bad_message_is_refused(message):
    with pytest.raises(BadMessage):
        parse(message)


def test_text_is_made_safe_for_every_database():
    assert clean_text("a\0b\ud800c") == "a�b?c"
    assert clean_text("x" * 100, 10) == "x" * 10
    assert clean_text(5) == ""
