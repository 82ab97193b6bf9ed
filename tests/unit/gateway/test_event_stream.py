"""Event streams on their way: whole events, the usage, and whether the end has come."""

import time

import pytest

from app.gateway.event_stream import MOST_EVENT_BYTES, EventStream, Tokens, tokens_of

TEXT = b'data: {"choices":[{"delta":{"content":"say \\"usage\\": {}"}}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":5,"total_tokens":12}}\n\n'
LAST = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}],"usage":null}\n\n'
DONE = b"data: [DONE]\n\n"
ERROR = b'data: {"error": {"message": "out of memory"}}\n\n'


def test_the_usage_is_taken_out_and_kept() -> None:
    stream = EventStream(keeps_usage=False)

    passed = stream.feed(TEXT + LAST + USAGE + DONE)

    assert passed == TEXT + LAST + DONE
    assert stream.tokens == Tokens(7, 5)
    assert stream.is_complete


def test_the_usage_is_passed_on_to_who_asked_for_it() -> None:
    assert EventStream(keeps_usage=True).feed(USAGE) == USAGE


@pytest.mark.parametrize("size", [1, 7, 50])
def test_events_are_passed_on_whole_however_they_come(size: int) -> None:
    whole = TEXT + LAST + USAGE + DONE
    stream = EventStream(keeps_usage=False)

    passed = [stream.feed(whole[at : at + size]) for at in range(0, len(whole), size)]

    assert b"".join(passed) == TEXT + LAST + DONE
    assert all(part.endswith(b"\n\n") for part in passed if part)


def test_a_stream_without_its_end_is_not_complete_and_events_count_as_tokens() -> None:
    stream = EventStream(keeps_usage=False)

    stream.feed(TEXT + TEXT + DONE[:-1])

    assert not stream.is_complete
    assert stream.tokens == Tokens(0, 2)


def test_an_error_of_the_engine_is_passed_on_and_noticed() -> None:
    stream = EventStream(keeps_usage=False)

    assert stream.feed(TEXT) + stream.feed(ERROR) == TEXT + ERROR
    assert stream.has_failed


def test_an_error_behind_another_event_is_noticed() -> None:
    stream = EventStream(keeps_usage=False)

    assert stream.feed(TEXT + ERROR) == TEXT + ERROR
    assert stream.has_failed


def test_text_that_says_usage_is_text() -> None:
    stream = EventStream(keeps_usage=False)

    assert stream.feed(TEXT) == TEXT
    assert stream.tokens == Tokens(0, 1)


@pytest.mark.parametrize("said", [10**30, (1 << 31) + 1, -5, True, 2.5, "7", None])
def test_what_is_no_count_counts_nothing(said: object) -> None:
    assert tokens_of({"prompt_tokens": said, "completion_tokens": 3}) == Tokens(0, 3)


def test_an_event_without_an_end_breaks_the_stream() -> None:
    stream = EventStream(keeps_usage=False)

    for _ in range(0, MOST_EVENT_BYTES + 1, 1 << 16):
        assert stream.feed(b"x" * (1 << 16)) == b""
    assert stream.is_broken
    assert stream.feed(b"\n\n" + DONE) == b""
    assert not stream.is_complete


@pytest.mark.long
def test_large_event_in_many_pieces_is_searched_once() -> None:
    stream, began = EventStream(keeps_usage=False), time.process_time()

    for _ in range(MOST_EVENT_BYTES - 2):
        stream.feed(b"x")
    passed = stream.feed(b"\n\n")

    assert len(passed) == MOST_EVENT_BYTES
    assert time.process_time() - began < 10


@pytest.mark.parametrize(
    "event",
    [
        b'data: {"usage": {no JSON\n\n',
        b'data: [{"usage": {}}]\n\n',
        b'data: {"usage": {"a": ' + b"[" * 100_000 + b"\n\n",
        b'data: {"usage": {"prompt_tokens": ' + b"9" * 10_000 + b"}}\n\n",
        b'data: {"usage": {"a": "\xff"}}\n\n',
    ],
)
def test_what_is_no_event_breaks_the_stream(event: bytes) -> None:
    stream = EventStream(keeps_usage=False)

    assert stream.feed(TEXT + event + DONE) == b""
    assert stream.is_broken
    assert not stream.is_complete
