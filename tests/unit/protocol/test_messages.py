"""Every message of the channel, right and wrong."""

import json
import math
from datetime import UTC, datetime

import pytest

from trainyard.protocol.channel import encode
from trainyard.protocol.commands import (
    AdapterReady,
    AdapterRefused,
    CheckpointFailed,
    CheckpointSaved,
    ForgetStop,
    ModelAnswered,
    SaveCheckpoint,
    Stop,
    WriteStacks,
    to_message,
)
from trainyard.protocol.commands import parse as parse_command
from trainyard.protocol.message_parser import BadMessage, parse
from trainyard.protocol.messages import (
    MAX_BODY,
    AskModel,
    CheckpointReady,
    Done,
    Failure,
    FetchAdapter,
    Hello,
    MetricPoint,
    PauseFailed,
    Phase,
    Progress,
    RankExit,
    Remark,
    Result,
    SectionMessage,
    clean_text,
    fields_of,
)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"type": "hello", "rank": 1, "pid": 7, "can_checkpoint": True}, Hello(rank=1, pid=7, can_checkpoint=True)),
        ({"type": "hello", "can_checkpoint": False, "dumps": True}, Hello(rank=0, can_checkpoint=False, dumps=True)),
        ({"type": "phase", "phase": "TRAINING"}, Phase("TRAINING")),
        ({"type": "phase", "phase": "SERVING"}, Phase("SERVING")),
        (
            {"type": "fetch_adapter", "name": "job-1.ckpt-1", "job_id": "job-1", "checkpoint_id": "ckpt-1"},
            FetchAdapter(name="job-1.ckpt-1", job_id="job-1", checkpoint_id="ckpt-1"),
        ),
        (
            {"type": "ask_model", "rank": 3, "number": 7, "path": "/v1/completions", "body": "{}"},
            AskModel(number=7, path="/v1/completions", body="{}"),
        ),
        ({"type": "fetch_adapter", "name": "a", "job_id": "job-1"}, FetchAdapter(name="a", job_id="job-1")),
        ({"type": "section", "name": "warm-up", "max_seconds": 30}, SectionMessage(name="warm-up", max_seconds=30.0)),
        ({"type": "section", "name": None, "max_seconds": None}, SectionMessage(name=None, max_seconds=None)),
        ({"type": "pause_failed", "message": "no room"}, PauseFailed("no room")),
        ({"type": "pause_failed", "number": 2, "message": "no room"}, PauseFailed("no room", number=2)),
        ({"type": "pause_failed", "number": 0, "message": "no room"}, PauseFailed("no room", number=0)),
        (
            {
                "type": "note",
                "reason": "COLD_CACHE",
                "message": "cold",
                "data": {"files": 3, "share": 0.5, "of": [1, 2]},
            },
            Remark(reason="COLD_CACHE", message="cold", data={"files": 3, "share": 0.5, "of": [1, 2]}),
        ),
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
            CheckpointReady(step=2, epoch=0.0, path="/run/checkpoints/2", metrics={"loss": 1.0}),
        ),
        (
            {"type": "checkpoint", "step": 2.0, "epoch": 0.5, "path": "/run/checkpoints/2", "metrics": {"a": "b"}},
            CheckpointReady(step=2, epoch=0.5, path="/run/checkpoints/2", metrics={}),
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
            {"type": "rank_exit", "rank": 0, "exit_code": 137, "signal": "SIGKILL", "at": 12.5},
            RankExit(rank=0, exit_code=137, signal="SIGKILL", at=12.5),
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
        {"type": "checkpoint", "step": 1},
        {"type": "checkpoint", "step": 1, "path": "a\0b"},
        {"type": "checkpoint", "step": 1, "path": "a\ud800b"},
        {"type": "checkpoint", "step": 1, "path": "x" * 5000},
        {"type": "result", "stopped": "lunch", "step": 1},
        {"type": "hello", "rank": "zero"},
        {"type": "ask_model", "number": -1, "path": "/v1/completions", "body": "{}"},
        {"type": "ask_model", "number": 1, "path": "", "body": "{}"},
        {"type": "ask_model", "number": 1, "path": "/v1/completions", "body": {}},
        {"type": "ask_model", "number": 1, "path": "/v1/completions", "body": ""},
        {"type": "ask_model", "number": 1, "path": "/v1/completions", "body": "x" * (MAX_BODY + 1)},
        {"type": "fetch_adapter", "name": "../above", "job_id": "job-1"},
        {"type": "fetch_adapter", "name": ".hidden", "job_id": "job-1"},
        {"type": "fetch_adapter", "name": "a" * 129, "job_id": "job-1"},
        {"type": "fetch_adapter", "name": 7, "job_id": "job-1"},
        {"type": "fetch_adapter", "name": "a", "job_id": ""},
        {"type": "fetch_adapter", "name": "a", "job_id": "j" * 200},
        {"type": "fetch_adapter", "name": "a", "job_id": "job-1", "checkpoint_id": "a\0b"},
    ],
)
def test_bad_message_is_refused(message):
    with pytest.raises(BadMessage):
        parse(message)


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ({"step": 5.0, "tokens": 1e6}, {"step": 5, "tokens": 1_000_000}),
        ({"step": "many", "tokens": -1}, {"step": None, "tokens": 0}),
        ({"final_metrics": {"loss": 1.0, "note": "good"}}, {"final_metrics": {"loss": 1.0}}),
        ({"final_metrics": [1]}, {"final_metrics": {}}),
        ({"weight_files": "a"}, {"weight_files": ()}),
        ({"weight_files": [1]}, {"weight_files": ()}),
        ({"weight_files": ["x"] * 10_001}, {"weight_files": ()}),
        ({"weight_files": ["b", "a", "b"]}, {"weight_files": ("b", "a")}),
    ],
)
def test_result_is_never_refused_for_what_it_says_besides(said, kept):
    result = parse({"type": "result", "stopped": None, "step": 1, **said})

    assert {name: getattr(result, name) for name in kept} == kept


def test_result_with_too_many_metrics_keeps_the_first():
    result = parse({"type": "result", "stopped": None, "step": 1, "final_metrics": {str(n): n for n in range(1002)}})

    assert isinstance(result, Result)
    assert list(result.final_metrics) == [str(n) for n in range(1000)]


def test_text_is_made_safe_for_every_database():
    assert clean_text("a\0b\ud800c") == "a�b?c"
    assert clean_text("x" * 100, 10) == "x" * 10
    assert clean_text(5) == ""


def test_note_of_a_hostile_rank_is_made_harmless():
    data = {"deep": [[1], {"a": 1}, "x", 2], "nan": math.nan, "huge": 10**400, "long": "x" * 100_000, "none": None}
    note = parse({"type": "note", "reason": "drop table;", "message": "a\0b", "data": {**data, "obj": {"a": 1}}})

    assert isinstance(note, Remark)
    assert (note.reason, note.message) == ("SCRIPT", "a\ufffdb")
    assert note.data["deep"] == [2]
    assert note.data["nan"] == "NaN"
    assert len(str(note.data["huge"])) == 128
    assert len(note.data["long"]) == 1000
    assert (note.data["none"], note.data["obj"]) == (None, "")


@pytest.mark.parametrize("data", [None, "text", [1]])
def test_note_without_data_is_one(data):
    assert parse({"type": "note", "message": "hello", "data": data}) == Remark(
        reason="SCRIPT", message="hello", data={}
    )


def test_section_that_lasts_for_ever_is_refused():
    with pytest.raises(BadMessage):
        parse({"type": "section", "name": "for ever", "max_seconds": "Infinity"})


AT = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("message", "sent"),
    [
        (Hello(pid=7, can_checkpoint=True), {"pid": 7, "can_checkpoint": True, "dumps": False}),
        (Phase("TRAINING"), {"phase": "TRAINING"}),
        (
            Progress(step=3, total_steps=9),
            {"step": 3, "total_steps": 9, "epoch": None, "total_epochs": None, "tokens": None},
        ),
        (
            MetricPoint(step=3, at=AT, values={"loss": 1.0}),
            {"step": 3, "at": "2026-01-02T03:04:05.678Z", "values": {"loss": 1.0}},
        ),
        (
            CheckpointReady(step=2, epoch=0.5, path="/run/2", metrics={"loss": 1.0}),
            {"step": 2, "epoch": 0.5, "path": "/run/2", "metrics": {"loss": 1.0}},
        ),
        (
            CheckpointReady(step=2, epoch=0.0, path="/run/2", metrics={}, kept=True),
            {"step": 2, "epoch": 0.0, "path": "/run/2", "metrics": {}, "kept": True},
        ),
        (Remark(reason="A", message="b", data={"c": 1}), {"reason": "A", "message": "b", "data": {"c": 1}}),
        (SectionMessage(name="a", max_seconds=None), {"name": "a", "max_seconds": None}),
        (PauseFailed("no room", number=0), {"message": "no room", "number": 0}),
        (
            Result(stopped="pause", step=5, final_metrics={"loss": 1.0}, output="/o", weight_files=("a",)),
            {
                "stopped": "pause",
                "step": 5,
                "tokens": 0,
                "final_metrics": {"loss": 1.0},
                "output": "/o",
                "weight_files": ["a"],
            },
        ),
        (Failure(error_type="A", message="b", stack="c"), {"error_type": "A", "message": "b", "stack": "c"}),
        (Done(), {}),
        (RankExit(rank=2, exit_code=1, signal="SIGKILL", at=1.5), {"exit_code": 1, "signal": "SIGKILL", "at": 1.5}),
    ],
)
def test_wire_format_of_messages_is_unchanged_and_read_back(message, sent):
    line = encode({"type": message.type, "rank": getattr(message, "rank", 0), **fields_of(message)})

    received = json.loads(line)

    assert {name: value for name, value in received.items() if name not in ("type", "rank")} == sent
    read = parse(received)
    assert type(read) is type(message)
    assert {name: fields_of(read)[name] for name in _read(message)} == _read(message)


def _read(message):
    """Of a message what a supervisor reads: a local run alone shows where its output is."""
    return {name: value for name, value in fields_of(message).items() if value is not None and name != "output"}


@pytest.mark.parametrize(
    ("command", "sent"),
    [
        (
            Stop("pause", save_checkpoint=True, number=2),
            {"type": "pause", "save_checkpoint": True, "force": False, "number": 2},
        ),
        (Stop("cancel", False), {"type": "cancel", "save_checkpoint": False, "force": False, "number": 0}),
        (ForgetStop(1), {"type": "forget", "number": 1}),
        (SaveCheckpoint(), {"type": "checkpoint"}),
        (
            CheckpointSaved("/run/2", "ckpt-1"),
            {"type": "checkpoint_saved", "path": "/run/2", "checkpoint_id": "ckpt-1"},
        ),
        (CheckpointFailed("/run/2", "full"), {"type": "checkpoint_failed", "path": "/run/2", "message": "full"}),
        (WriteStacks(), {"type": "stacks"}),
        (
            Stop("drain", save_checkpoint=False),
            {"type": "drain", "save_checkpoint": False, "force": False, "number": 0},
        ),
        (AdapterReady("a", "/run/adapters/a"), {"type": "adapter_ready", "name": "a", "path": "/run/adapters/a"}),
        (AdapterRefused("a", "other base"), {"type": "adapter_refused", "name": "a", "message": "other base"}),
        (
            ModelAnswered(number=0, status=200, body="{}"),
            {"type": "model_answered", "number": 0, "status": 200, "body": "{}"},
        ),
    ],
)
def test_wire_format_of_commands_is_unchanged_and_read_back(command, sent):
    assert to_message(command) == sent
    assert parse_command(sent) == command


def test_command_of_a_newer_supervisor_is_ignored():
    assert parse_command({"type": "dance"}) is None
