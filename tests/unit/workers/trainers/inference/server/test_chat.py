"""Chat completions over the socket of a replica."""

import json
from typing import Any

import pytest

from tests.unit.workers.trainers.inference.server.socket_client import CHAT, Replica


def user(content: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": content}]


MESSAGES = user("Return the name")


def body(**values: Any) -> dict[str, Any]:
    return {"model": "tiny", "messages": MESSAGES, "max_tokens": 8, "temperature": 0, **values}


def test_answer_has_the_shape_of_a_chat_completion(replica: Replica) -> None:
    answer = replica.ask(CHAT, body())

    assert answer.status == 200
    found = answer.json
    [choice] = found["choices"]
    assert (found["object"], found["model"]) == ("chat.completion", "tiny")
    assert found["id"].startswith("chatcmpl-")
    assert choice["message"]["role"] == "assistant"
    assert choice["message"]["content"]
    assert choice["finish_reason"] in ("stop", "length")
    usage = found["usage"]
    assert 0 < usage["completion_tokens"] <= 8
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


def test_stream_has_the_text_of_the_whole_answer(replica: Replica) -> None:
    whole = replica.ask(CHAT, body()).json

    stream = replica.ask(CHAT, body(stream=True, stream_options={"include_usage": True}))

    assert stream.headers["Content-Type"].startswith("text/event-stream")
    *chunks, last = stream.events
    parts = [chunk["choices"][0] for chunk in chunks]
    assert parts[0]["delta"] == {"role": "assistant", "content": ""}
    assert "".join(part["delta"].get("content", "") for part in parts) == whole["choices"][0]["message"]["content"]
    assert parts[-1]["finish_reason"] == whole["choices"][0]["finish_reason"]
    assert [part["finish_reason"] for part in parts[:-1]] == [None] * (len(parts) - 1)
    assert (last["choices"], last["usage"]) == ([], whole["usage"])
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert {chunk["system_fingerprint"] for chunk in chunks} == {whole["system_fingerprint"]}


def test_stream_has_no_usage_where_none_is_asked_for(replica: Replica) -> None:
    events = replica.ask(CHAT, body(stream=True)).events

    assert all("usage" not in event and event["choices"] for event in events)


def test_sampled_answers_are_repeated_by_their_seed(replica: Replica) -> None:
    asked = body(temperature=1.5, seed=5, n=3)

    first, second = (replica.ask(CHAT, asked).json["choices"] for _ in range(2))
    other = replica.ask(CHAT, {**asked, "seed": 6}).json["choices"]

    assert first == second != other
    assert [choice["index"] for choice in first] == [0, 1, 2]
    assert len({choice["message"]["content"] for choice in first}) > 1


def test_log_probabilities_are_those_of_the_tokens(replica: Replica) -> None:
    found = replica.ask(CHAT, body(logprobs=True, top_logprobs=2)).json

    [choice] = found["choices"]
    tokens = choice["logprobs"]["content"]
    assert len(tokens) == found["usage"]["completion_tokens"]
    content = bytes(byte for token in tokens for byte in token["bytes"])
    assert content.decode(errors="replace") == choice["message"]["content"]
    assert all(token["logprob"] < 0 and len(token["top_logprobs"]) == 2 for token in tokens)
    assert tokens[0]["token"] == tokens[0]["top_logprobs"][0]["token"]


def test_stop_text_ends_the_answer_before_it(replica: Replica) -> None:
    text = replica.ask(CHAT, body(max_tokens=32)).json["choices"][0]["message"]["content"]
    stop = text[4:7]

    [choice] = replica.ask(CHAT, body(max_tokens=32, stop=[stop])).json["choices"]

    assert choice["message"]["content"] == text[: text.index(stop)]
    assert choice["finish_reason"] == "stop"


def test_answer_follows_a_schema(replica: Replica) -> None:
    found = {"properties": {"found": {"type": "boolean"}}, "required": ["found"]}
    schema = {"type": "object", "additionalProperties": False, **found}
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}

    [choice] = replica.ask(CHAT, body(max_tokens=40, response_format=form)).json["choices"]

    assert isinstance(json.loads(choice["message"]["content"])["found"], bool)


def test_required_tool_is_called(replica: Replica) -> None:
    parameters = {
        "type": "object",
        "properties": {"place": {"$ref": "#/$defs/place"}},
        "required": ["place"],
        "additionalProperties": False,
        "$defs": {"place": {"enum": ["Bern", "Rome"]}},
    }
    tool = {"type": "function", "function": {"name": "weather", "parameters": parameters}}
    choice = {"type": "function", "function": {"name": "weather"}}
    asked = body(max_tokens=60, tools=[tool], tool_choice=choice)

    whole = replica.ask(CHAT, asked).json["choices"][0]
    parts = [event["choices"][0] for event in replica.ask(CHAT, {**asked, "stream": True}).events]

    [call] = whole["message"]["tool_calls"]
    assert (whole["finish_reason"], whole["message"]["content"]) == ("tool_calls", None)
    assert call["function"]["name"] == "weather"
    assert json.loads(call["function"]["arguments"])["place"] in ("Bern", "Rome")
    [streamed] = [call for part in parts for call in part["delta"].get("tool_calls", [])]
    assert (streamed["index"], streamed["function"]) == (0, call["function"])
    assert parts[-1]["finish_reason"] == "tool_calls"


@pytest.mark.parametrize(
    ("values", "param", "code"),
    [
        ({"max_tokens": 65}, "max_tokens", None),
        ({"max_tokens": None, "max_completion_tokens": 0}, "max_completion_tokens", None),
        ({"messages": user("x" * 100), "max_tokens": 60}, "max_tokens", "context_length_exceeded"),
        ({"messages": user("x" * 300)}, None, "context_length_exceeded"),
        ({"logit_bias": {"100000": 5}}, "logit_bias", None),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "thing"}}}},
            "response_format.json_schema.schema.type",
            None,
        ),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_request_that_the_model_cannot_answer(
    replica: Replica, values: dict[str, Any], param: str | None, code: str | None, *, stream: bool
) -> None:
    answer = replica.ask(CHAT, body(stream=stream, **values))

    assert answer.status == 400
    assert (answer.error["type"], answer.error["param"], answer.error["code"]) == ("invalid_request_error", param, code)


def test_request_that_is_too_long_is_answered_with_the_numbers(replica: Replica) -> None:
    message = replica.ask(CHAT, body(messages=user("x" * 100), max_tokens=60)).error["message"]

    assert "128" in message
    assert "60" in message
    assert "prompt has 1" in message


def test_content_in_parts_is_one_text(replica: Replica) -> None:
    parts = [{"type": "text", "text": "Return "}, {"type": "text", "text": "the name"}]

    whole, divided = (
        replica.ask(CHAT, body(messages=user(content))).json["choices"] for content in ("Return the name", parts)
    )

    assert whole == divided


@pytest.mark.parametrize(
    ("given", "message"), [([], "no JSON object"), ({"model": "tiny"}, "no messages"), ({"messages": []}, "no model")]
)
def test_body_that_is_no_request(replica: Replica, given: Any, message: str) -> None:
    answer = replica.ask(CHAT, given)

    assert answer.status == 400
    assert message in answer.error["message"]


def test_unknown_path(replica: Replica) -> None:
    answer = replica.ask("/v1/unknown", {})

    assert (answer.status, answer.error["type"]) == (404, "invalid_request_error")
