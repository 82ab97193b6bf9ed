"""What the inspection of an uploaded file finds: shape, records, and problems with line and field."""

import json
from typing import Any

import pytest

from app.domain.files.inspection import EMPTY, MOST_BATCH_LINES, MOST_PROBLEMS, TOO_MANY_REQUESTS, inspect
from app.domain.files.lines import lines
from app.domain.files.purposes import BATCH, FINE_TUNE

LONGEST_LINE = 1000
USER, ASSISTANT = {"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}
CHAT = {"messages": [USER, ASSISTANT]}
PROMPT = {"messages": [USER], "answer": "4"}
SEVERAL_TURNS = {"messages": [USER, ASSISTANT, USER]}
PREFERENCE = {"input": {"messages": [USER]}, "preferred_output": [ASSISTANT], "non_preferred_output": [ASSISTANT]}
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}}
CALLING = {"role": "assistant", "content": None, "tool_calls": [CALL]}
TOOL = {"type": "function", "function": {"name": "add", "parameters": {}}}
REQUEST = {"custom_id": "a", "method": "POST", "url": "/v1/embeddings", "body": {"model": "tiny", "input": "x"}}


def found(*records: object, purpose: str = FINE_TUNE) -> Any:
    return content("\n".join(json.dumps(each) for each in records).encode(), purpose)


def content(data: bytes, purpose: str = FINE_TUNE) -> Any:
    return inspect([data], purpose, LONGEST_LINE)


def chat(**message: object) -> dict[str, Any]:
    return {"messages": [USER, {**ASSISTANT, **message}]}


@pytest.mark.parametrize(
    ("records", "shape"),
    [
        ([CHAT, SEVERAL_TURNS], "messages"),
        ([SEVERAL_TURNS, CHAT], "messages"),
        ([SEVERAL_TURNS], "messages"),
        ([PROMPT, SEVERAL_TURNS], "prompts"),
        ([SEVERAL_TURNS, PROMPT], "prompts"),
        ([chat(weight=0), chat(weight=1)], "messages"),
        (
            [{"messages": [USER, CALLING, {"role": "tool", "tool_call_id": "c1", "content": "4"}], "tools": [TOOL]}],
            "messages",
        ),
        ([chat(content=[{"type": "text", "text": "4"}])], "messages"),
        ([PREFERENCE], "preference"),
        ([{"prompt": "2 + 2?", "completion": "4"}], "prompt_completion"),
        ([{"text": "2 + 2 is 4"}], "text"),
    ],
)
def test_valid_records_have_a_shape(records: list[Any], shape: str) -> None:
    result = found(*records)

    assert (result.problems, result.shape, result.records) == ([], shape, len(records))


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        ([], "must be a JSON object"),
        ({"instruction": "x"}, "must have messages, or prompt and completion, or input, preferred_output and "),
        ({"messages": []}, "messages: must be a list of messages that is not empty"),
        ({"messages": ["x"]}, "messages.0: must be an object with role and content"),
        ({"messages": [{"role": "bot", "content": "x"}]}, "messages.0.role: must be one of system, developer, user"),
        ({"messages": [{"role": ["user"], "content": "x"}]}, "messages.0.role: must be one of"),
        ({"messages": [{"role": "user"}]}, "messages.0.content: must be a text; only an assistant's message with"),
        (chat(content=4), "messages.1.content: must be a text"),
        (chat(content=[{"type": "image_url"}]), "messages.1.content.0.type: is image_url; only text is supported, no"),
        (chat(content=[{"type": "input_audio"}]), "messages.1.content.0.type: is input_audio; only text is supported"),
        (chat(audio={"id": "a"}), "messages.1.audio: audio is not supported"),
        (chat(weight=2), "messages.1.weight: must be 0 or 1"),
        (chat(weight=True), "messages.1.weight: must be 0 or 1"),
        (
            {"messages": [{**USER, "weight": 1}, ASSISTANT]},
            "messages.0.weight: is allowed on messages of the assistant",
        ),
        (chat(tool_calls=[{"id": "c", "function": {"name": "f"}}]), "messages.1.tool_calls.0.function.arguments: must"),
        ({"messages": [USER, CALLING, {"role": "tool", "content": "4"}]}, "messages.2.tool_call_id: must be a text"),
        ({**CHAT, "tools": [{"type": "code_interpreter"}]}, 'tools.0: must be an object of type "function"'),
        ({**PREFERENCE, "input": "2 + 2?"}, "input: must be an object with messages"),
        ({**PREFERENCE, "preferred_output": [USER]}, "preferred_output.0.role: must be one of assistant, tool"),
        ({"preferred_output": [ASSISTANT]}, "input: is missing"),
        ({"prompt": "x"}, "completion: is missing"),
        ({"text": ""}, "text: must be a text that is not empty"),
    ],
)
def test_a_wrong_record_is_named_with_line_and_field(record: object, problem: str) -> None:
    assert found(record).problems[0].startswith(f"line 1: {problem}")


@pytest.mark.parametrize(
    ("records", "problem"),
    [
        ([CHAT, {"text": "x"}], "line 2: has the shape text; the records before have the shape messages"),
        ([CHAT, PROMPT], "line 2: messages: has no turn of the assistant to learn; line 1 has one"),
        ([PROMPT, CHAT], "line 2: messages: ends with a turn of the assistant; line 1 has none"),
        ([SEVERAL_TURNS, CHAT, PROMPT], "line 3: messages: has no turn of the assistant to learn; line 2 has one"),
    ],
)
def test_a_file_has_one_shape(records: list[Any], problem: str) -> None:
    assert found(*records).problems == [problem]


@pytest.mark.parametrize(
    ("records", "problem"),
    [
        ([REQUEST, REQUEST], "line 2: custom_id: 'a' is the one of line 1, too"),
        (
            [REQUEST, {**REQUEST, "custom_id": "b", "url": "/v1/completions"}],
            "line 2: url: must be the one of the lines",
        ),
        ([{**REQUEST, "method": "GET"}], "line 1: method: must be POST"),
        ([{**REQUEST, "url": "/v1/images"}], "line 1: url: must be one of /v1/chat/completions"),
        ([{**REQUEST, "body": {}}], "line 1: body.model: must name a model"),
        ([CHAT], "line 1: custom_id: must be a text of 1 to 512 characters"),
    ],
)
def test_requests_of_batches_are_checked(records: list[Any], problem: str) -> None:
    assert found(REQUEST, purpose=BATCH).problems == []

    assert found(*records, purpose=BATCH).problems[0].startswith(problem)


def test_a_batch_with_too_many_requests_has_one_problem_for_all() -> None:
    many = ({**REQUEST, "custom_id": str(number)} for number in range(MOST_BATCH_LINES + 3))

    assert found(*many, purpose=BATCH).problems == [f"line {MOST_BATCH_LINES + 1}: {TOO_MANY_REQUESTS}"]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", EMPTY),
        (b" \n\r\n\n", EMPTY),
        (b'{"text": "a"}\n\n{"text": }', "line 3: is not JSON: Expecting value at character 10"),
        (b'{"text": NaN}', "line 1: is not JSON: NaN is no JSON number"),
        (b'\xef\xbb\xbf{"text": "a"}', "line 1: begins with a byte order mark; save the file as UTF-8 without one"),
        ('{"text": "a"}'.encode("utf-16"), "line 1: is UTF-16; save the file as UTF-8"),
        (b'{"text": "\xe4"}', "line 1: is not UTF-8: byte 11 is 0xe4"),
        (b'{"text": "a\x00"}', "line 1: contains NUL"),
        (b'{"text": "a"}\r{"text": "b"}\r', "line 1: contains CR: end lines with LF or CRLF, not with CR alone"),
        (b'{"text": "a"}\r' * 100, "line 1: contains CR: end lines with LF or CRLF, not with CR alone"),
        (b'{"text": "' + b"a" * LONGEST_LINE + b'"}', "line 1: is longer than 1,000 bytes"),
        (b"[" * LONGEST_LINE, "line 1: is nested too deeply"),
        (b'{"text": "\\ud800"}', "line 1: contains an escape of half a character (\\ud800 to \\udfff)"),
    ],
)
def test_content_that_is_no_json_lines_is_named_with_its_line(data: bytes, problem: str) -> None:
    assert content(data).problems == [problem]


def test_number_that_is_too_long_is_refused_in_our_words() -> None:
    result = inspect([b'{"text": ' + b"1" * 5000 + b"}"], FINE_TUNE, 10_000)

    assert result.problems == ["line 1: has a number of more than 4,300 digits"]


def test_problems_end_at_a_hundred_and_can_be_stored() -> None:
    result = content(b'{"\\u0000\\ud83d\\ude00": 1}\n' * 1000)

    assert len(result.problems) == MOST_PROBLEMS
    assert "it has \ufffd\U0001f600" in result.problems[0]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_lines_are_the_same_however_the_content_arrives(size: int) -> None:
    data = b"\n\nab\n \r\ncde\r\n\n\nf\n" + b"g" * 9 + b"\nh"
    chunks = [data[at : at + size] for at in range(0, len(data), size)]

    read = [(each.number, each.content, each.is_too_long) for each in lines(chunks, 5)]

    assert read == [(3, b"ab", False), (5, b"cde\r", False), (8, b"f", False), (9, b"gggggg", True), (10, b"h", False)]
