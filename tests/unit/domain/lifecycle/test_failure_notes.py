"""A failed job in words."""

import pytest

from app.domain.lifecycle.failure_notes import failure_note

STACK = (
    'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\nValueError: no such column: text\n\n'
)


def test_a_known_type_has_its_meaning_and_way_out():
    found = failure_note("DATA_NOT_FOUND", "the job ended", STACK)

    assert found.meaning == "a data source could not be found or read"
    assert found.way_out
    assert found.last_line == "ValueError: no such column: text"


def test_nothing_is_said_twice():
    way_out = failure_note("DATA_NOT_FOUND", "", "").way_out

    found = failure_note("DATA_NOT_FOUND", f"ValueError: no such column: text. {way_out}", STACK)

    assert (found.way_out, found.last_line) == ("", "")


def test_a_type_of_a_newer_version_and_a_failure_without_a_traceback_are_shown_as_they_are():
    found = failure_note("NOT_OF_THIS_VERSION", "something", "")

    assert (found.meaning, found.way_out, found.message, found.last_line) == ("", "", "something", "")


@pytest.mark.parametrize(
    "led_to",
    [
        "The above exception was the direct cause of the following exception:",
        "During handling of the above exception, another exception occurred:",
    ],
)
def test_a_chain_of_exceptions_names_the_first_of_them(led_to: str):
    found = failure_note("SCRIPT_ERROR", "", f"Traceback:\nKeyError: 'vocab_size'\n\n{led_to}\n\n{STACK}")

    assert (found.cause_line, found.last_line) == ("KeyError: 'vocab_size'", "ValueError: no such column: text")
    assert failure_note("SCRIPT_ERROR", "", STACK).cause_line == ""
    assert "error_stack" not in found.way_out
