"""How what a session server says, which a hostile job may write, is read."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.protocol.session_answers import BadAnswer, Refusal, Status, read_answer, read_status

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
NO_OBJECTS = [
    b"",
    b"[]",
    b"null",
    b"7",
    b"\xff",
    b"[" * 60_000,
    b'{"a":' * 60_000,
    b"1" * 5000,
    b'{"exit_code":' + b"1" * 5000,
]


@pytest.mark.parametrize(
    ("said", "refusal"),
    [
        ({"type": "started"}, None),
        ({"type": "refused", "message": "no"}, Refusal("no")),
        ({"type": "refused", "message": "no", "exit_code": 127, "final": True}, Refusal("no", 127, final=True)),
        ({"type": "refused"}, Refusal("the job's sandbox refuses")),
        ({"type": "refused", "message": ["no"], "final": 1}, Refusal("the job's sandbox refuses")),
        ({"type": "refused", "message": "a\ud800b\0", "exit_code": 10**30}, Refusal("a?b�")),
        ({"type": "refused", "message": "a\x1b]0;b\x07\r\nc"}, Refusal("a�]0;b� c")),
        ({"type": "refused", "message": "y" * 5000, "exit_code": True}, Refusal("y" * 1000)),
    ],
)
def test_an_answer_is_started_or_refused(said: object, refusal: Refusal | None) -> None:
    assert read_answer(json.dumps(said).encode()) == refusal


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ({"exit_code": 0, "signal": None, "message": ""}, Status(0)),
        ({"exit_code": 137, "signal": "SIGKILL", "message": ""}, Status(137, "SIGKILL")),
        ({"exit_code": None, "message": "its terminal broke"}, Status(message="its terminal broke")),
        ({"exit_code": True, "signal": 9, "message": {}}, Status()),
        ({"exit_code": 10**30, "message": "\ud800"}, Status(message="?")),
        ({"exit_code": 0, "message": "y" * 5000}, Status(0, message="y" * 1000)),
    ],
)
def test_a_status_is_what_can_be_told(said: object, status: Status) -> None:
    assert read_status(json.dumps(said).encode()) == status
    assert read_status(status.encoded()) == status


@pytest.mark.parametrize("said", [*NO_OBJECTS, b"{}", b'{"type": "other"}'])
def test_what_is_neither_is_an_error_of_its_own(said: bytes) -> None:
    with pytest.raises(BadAnswer):
        read_answer(said)
    with pytest.raises(BadAnswer):
        read_status(said)


@pytest.mark.long
@given(st.dictionaries(st.sampled_from(["type", "message", "exit_code", "final", "signal"]), JSON))
def test_texts_can_be_stored_and_sent(said: dict[str, object]) -> None:
    line = json.dumps({"type": "refused", "exit_code": 0} | said).encode()
    for read in (read_answer, read_status):
        try:
            found = read(line)
        except BadAnswer:
            continue
        if found is not None:
            found.message.encode()
            assert "\0" not in found.message
            assert found.exit_code is None or abs(found.exit_code) <= 256
