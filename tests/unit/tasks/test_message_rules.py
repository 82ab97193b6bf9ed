"""Messages that Celery would end a worker by, or that ask for more than a call of ours, are no messages."""

import json
from collections.abc import Callable

import pytest
from celery.worker.control import Panel
from hypothesis import given
from hypothesis import strategies as st

from app.services.requests.wakeups import RUN
from tasks.message_rules import COMMANDS, MOST_BYTES, Defect, check_command, check_task
from tests.builders.messages import command_message, task_message

QUEUE = "jobs.default"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def raw(message: object) -> bytes:
    return json.dumps(message).encode()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"{", "it is not JSON"),
        (b"\xff\xfe", "it is not JSON"),
        (b"[" * 200_000, "it is not JSON"),
        (b"1" * 5000, "it is not JSON"),
        (b" " * (MOST_BYTES + 1), "at most 262144 are read"),
        (b"[]", "it is not an object"),
        (raw({}), "headers is missing or not an object"),
        (raw({"headers": {}, "properties": []}), "properties is missing or not an object"),
        (raw(task_message(properties={"delivery_tag": None})), "the property delivery_tag has a wrong value"),
        (raw(task_message(properties={"delivery_info": 1})), "the property delivery_info has a wrong value"),
        (raw(task_message(properties={"body_encoding": "zip"})), "the property body_encoding has a wrong value"),
        (raw(task_message(properties={"priority": 77})), "the property priority has a wrong value"),
        (raw(task_message(properties={"priority": True})), "the property priority has a wrong value"),
        (raw(task_message(queue="cpu.other")), "it was sent to another queue"),
        (raw(task_message() | {"content-type": "application/x-python-serialize"}), "not declared as JSON"),
        (raw(task_message() | {"content-encoding": "binary"}), "not declared as JSON"),
        (raw(task_message() | {"body": None}), "its body is missing"),
        (raw(task_message() | {"body": "%%%"}), "its body is not base64"),
        (raw(task_message() | {"body": "e30"}), "its body is not base64"),
        (raw(task_message() | {"body": "e3s="}), "its body is not JSON"),
        (raw(task_message(headers={"compression": "application/x-gzip"})), "it is compressed"),
        (raw(task_message(headers={"is_eager": True})), "the header 'is_eager' is unknown"),
        (raw(task_message(headers={"task": ["trainyard.admit"]})), "the header task has a wrong value"),
        (raw(task_message(headers={"id": 7})), "the header id has a wrong value"),
        (raw(task_message(headers={"expires": "soon"})), "the header expires has a wrong value"),
        (raw(task_message(headers={"expires": "2026-01-01T00:00:00"})), "the header expires has a wrong value"),
        (raw(task_message(headers={"eta": "2090-01-01T00:00:00+00:00"})), "the header eta has a wrong value"),
        (raw(task_message(headers={"timelimit": [1, 1]})), "the header timelimit has a wrong value"),
        (raw(task_message(headers={"group": "g"})), "the header group has a wrong value"),
        (raw(task_message(task="celery.map")), "the task 'celery.map' is unknown"),
        (raw(task_message({"job": 1})), "the arguments of trainyard.admit are wrong"),
        (raw(task_message(["job-1", 1])), "the arguments of trainyard.admit are wrong"),
        (raw(task_message(["job-1"], task=RUN)), "the arguments of trainyard.run are wrong"),
        (raw(task_message(["job-1", "1"], task=RUN)), "the arguments of trainyard.run are wrong"),
        (raw(task_message(["job-1", 2**40], task=RUN)), "the arguments of trainyard.run are wrong"),
        (raw(task_message(body=[[], {"x": 1}, {}])), "the arguments of trainyard.admit are wrong"),
        (raw(task_message(body={})), "its body is not a list of arguments"),
        (raw(task_message(body=[[], {}, {"callbacks": [{"task": "x"}]}])), "it asks for further tasks"),
    ],
)
def test_defective_request_for_a_task_is_told_why(content: bytes, reason: str) -> None:
    with pytest.raises(Defect, match=reason):
        check_task(content, QUEUE)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"{", "it is not JSON"),
        (raw(command_message("ping") | {"headers": {"clock": "1"}}), "the header clock has a wrong value"),
        (raw(command_message("ping") | {"headers": {"clock": 10**30}}), "the header clock has a wrong value"),
        (raw(command_message("ping") | {"body": "MQ=="}), "its body is not an object"),
        (raw(command_message("ping", destination="node@box")), "destination has a wrong value"),
        (raw(command_message("ping", [1])), "arguments has a wrong value"),
        (raw(command_message("ping", reply_to={"exchange": "x"})), "reply_to has a wrong value"),
        *(
            (raw(command_message(name)), f"the command '{name}' is not available")
            for name in sorted(Panel.data.keys() - COMMANDS)
        ),
    ],
)
def test_defective_command_is_told_why(content: bytes, reason: str) -> None:
    with pytest.raises(Defect, match=reason):
        check_command(content)


def test_what_our_processes_send_is_accepted() -> None:
    check_task(raw(task_message("job-1", "job-2")), QUEUE)
    check_task(raw(task_message(["job-1", 1], task=RUN, queue="cpu.box")), "cpu.box")
    check_task(raw(task_message("job-1", headers={"redelivered": True})), QUEUE)
    check_command(raw(command_message("nudge", {"job_id": "job-1"}, destination=["node@box"])))


def test_commands_that_end_or_change_workers_are_celerys_but_not_ours() -> None:
    forbidden = Panel.data.keys() - COMMANDS

    assert {"shutdown", "pool_restart", "pool_shrink", "rate_limit", "add_consumer", "cancel_consumer"} <= forbidden
    assert {"disable_events", "time_limit", "autoscale", "election"} <= forbidden


@given(replaced=st.sampled_from(["body", "headers", "properties"]), name=st.text(max_size=12), value=JSON)
def test_nothing_but_a_defect_is_raised(replaced: str, name: str, value: object) -> None:
    whole = task_message("job-1")
    checks: list[Callable[[bytes], None]] = [lambda content: check_task(content, QUEUE), check_command]
    parts = [value, {name: value}, *([whole[replaced] | {name: value}] if replaced != "body" else [])]
    for check in checks:
        for part in parts:
            try:
                check(raw(whole | {replaced: part}))
            except Defect:
                continue
