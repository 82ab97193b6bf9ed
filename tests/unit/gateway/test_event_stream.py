"""Event streams on their way: whole events, the usage, and whether the end has come."""

import pytest

from app.gateway.event_stream import EventStream, Tokens

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


def test_text_that_says_usage_is_text() -> None:
    stream = EventStream(keeps_usage=False)

    assert stream.feed(TEXT) == TEXT
    assert stream.tokens == Tokens(0, 1)
