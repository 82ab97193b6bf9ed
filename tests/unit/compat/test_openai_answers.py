"""Requests for answers: what engines get of them, and what is refused with the field as the client names it."""

import json
from pathlib import Path
from typing import Any

import pytest
from marshmallow import Schema

from app.compat.openai.answers.schemas import ChatSchema, CompletionSchema, EmbeddingSchema, RerankSchema
from app.http.errors import BadShape
from app.http.request_body import validated

CHAT: dict[str, Any] = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}]}
TEXT: dict[str, Any] = {"model": "tiny", "prompt": "hello"}
INPUT: dict[str, Any] = {"model": "tiny", "input": "hello"}
TOOL: dict[str, Any] = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
CALL = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}


def schema_form(schema: object) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}


def message(**fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "hello"}, fields]}


BAD_CHATS: list[tuple[dict[str, Any], str]] = [
    ({"messages": []}, "messages"),
    ({"messages": "hello"}, "messages"),
    (message(role="poet", content="x"), "messages.1.role"),
    (message(content="x"), "messages.1.role"),
    (message(role="user"), "messages.1.content"),
    (message(role="user", content=5), "messages.1.content"),
    (message(role="user", content=[]), "messages.1.content"),
    (message(role="user", content=[{"type": "text", "text": "a"}, IMAGE]), "messages.1.content.1.type"),
    (message(role="user", content=[{"type": "input_audio", "input_audio": {}}]), "messages.1.content.0.type"),
    (message(role="tool", content="x"), "messages.1.tool_call_id"),
    (message(role="user", content="x", tool_calls=[CALL]), "messages.1.tool_calls"),
    (message(role="assistant", tool_calls=[{"id": "a", "type": "function"}]), "messages.1.tool_calls.0.function"),
    (message(role="user", content="x", mood="good"), "messages.1.mood"),
    ({"temperature": 3}, "temperature"),
    ({"temperature": -0.1}, "temperature"),
    ({"temperature": 1e-38}, "temperature"),
    ({"repetition_penalty": 1e-40}, "repetition_penalty"),
    ({"temperature": "1"}, "temperature"),
    ({"top_p": 0}, "top_p"),
    ({"n": 0}, "n"),
    ({"n": 65}, "n"),
    ({"n": 1.0}, "n"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": 4, "max_completion_tokens": 4}, "max_completion_tokens"),
    ({"logprobs": 6}, "logprobs"),
    ({"top_logprobs": 5}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"stop": []}, "stop"),
    ({"stop": ""}, "stop"),
    ({"stop": ["a", "b", "c", "d", "e"]}, "stop"),
    ({"frequency_penalty": 2.1}, "frequency_penalty"),
    ({"presence_penalty": -3}, "presence_penalty"),
    ({"logit_bias": {"a": 1}}, "logit_bias.a"),
    ({"logit_bias": {"5": 101}}, "logit_bias.5"),
    ({"seed": 2**60}, "seed"),
    ({"seed": True}, "seed"),
    ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"response_format": {"type": "yaml"}}, "response_format.type"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
    (schema_form({"type": "thing"}), "response_format.json_schema.schema.type"),
    (schema_form("none"), "response_format.json_schema"),
    ({"tools": []}, "tools"),
    ({"tools": [{**TOOL, "type": "web_search"}]}, "tools.0.type"),
    ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools.0.function.name"),
    ({"tools": [TOOL, TOOL]}, "tools"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "time"}}}, "tool_choice"),
    ({"tools": [TOOL], "tool_choice": "perhaps"}, "tool_choice"),
    ({"service_tier": "flex"}, "service_tier"),
    ({"store": True}, "store"),
    ({"prediction": {"type": "content", "content": "x"}}, "prediction"),
    ({"audio": {"voice": "a", "format": "wav"}}, "audio"),
    ({"modalities": ["text", "audio"]}, "modalities.1"),
    ({"web_search_options": {}}, "web_search_options"),
    ({"functions": [{"name": "f"}]}, "functions"),
    ({"metadata": {str(number): "x" for number in range(17)}}, "metadata"),
    ({"model": ""}, "model"),
    ({"model": None}, "model"),
    ({"mood": "good"}, "mood"),
]
BAD_TEXTS: list[tuple[dict[str, Any], str]] = [
    ({"prompt": None}, "prompt"),
    ({"prompt": []}, "prompt"),
    ({"prompt": ["a", 5]}, "prompt"),
    ({"prompt": [1, "a"]}, "prompt"),
    ({"prompt": [-1]}, "prompt"),
    ({"prompt": [[]]}, "prompt"),
    ({"prompt": [True]}, "prompt"),
    ({"prompt": ["a"] * 129}, "prompt"),
    ({"prompt": ["a"] * 65, "n": 2}, "n"),
    ({"logprobs": 6}, "logprobs"),
    ({"n": 0}, "n"),
    ({"temperature": 3}, "temperature"),
    ({"best_of": 2}, "best_of"),
    ({"suffix": "end"}, "suffix"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": -1, "echo": True}, "max_tokens"),
    ({"messages": []}, "messages"),
]
BAD_INPUTS: list[tuple[dict[str, Any], str]] = [
    ({"input": ""}, "input"),
    ({"input": []}, "input"),
    ({"input": ["a", ""]}, "input"),
    ({"input": ["a"] * 2049}, "input"),
    ({"input": [[1], [2.5]]}, "input"),
    ({"encoding_format": "int8"}, "encoding_format"),
    ({"dimensions": 0}, "dimensions"),
    ({"temperature": 1}, "temperature"),
]
ALL = [
    (schema, {**good, **bad}, param)
    for schema, good, rows in (
        (ChatSchema, CHAT, BAD_CHATS),
        (CompletionSchema, TEXT, BAD_TEXTS),
        (EmbeddingSchema, INPUT, BAD_INPUTS),
    )
    for bad, param in rows
]


@pytest.mark.parametrize(("schema", "body", "param"), ALL)
def test_bad_requests_name_the_field(schema: type[Schema], body: dict[str, Any], param: str) -> None:
    with pytest.raises(BadShape) as refused:
        validated(schema(), body)

    assert param in [field for field, _ in refused.value.details]


@pytest.mark.parametrize(
    ("body", "limits"),
    [
        ({"temperature": 3}, "3 must be from 0 to 2"),
        ({"n": 0}, "0 must be from 1 to 64"),
        ({"stop": ["a"] * 5}, "1 to 4 texts"),
        ({"logit_bias": {"5": 101}}, "from -100 to 100"),
        ({"messages": []}, "must have 1 to 10000 entries, not 0"),
    ],
)
def test_refusals_say_the_limits(body: dict[str, Any], limits: str) -> None:
    with pytest.raises(BadShape, match=limits):
        validated(ChatSchema(), {**CHAT, **body})


def test_what_the_client_sends_is_taken() -> None:
    recorded = json.loads(Path(__file__).with_name("openai_requests.json").read_text(encoding="utf-8"))["requests"]
    sent = [
        (schema, each["body"])
        for path, schema in (
            ("chat/completions", ChatSchema),
            ("completions", CompletionSchema),
            ("embeddings", EmbeddingSchema),
        )
        for each in recorded.values()
        if each["request"] == f"POST /v1/{path}"
    ]

    assert len(sent) == 8
    for schema, body in sent:
        assert validated(schema(), body)["model"] == "tiny"


def test_engines_get_what_they_act_on() -> None:
    asked = {
        "temperature": 0.5,
        "top_p": 0.9,
        "n": 2,
        "seed": -7,
        "stop": "\n",
        "logprobs": True,
        "top_logprobs": 3,
        "logit_bias": {"5": -100},
        "max_completion_tokens": 8,
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [TOOL],
        "tool_choice": {"type": "function", "function": {"name": "weather"}},
        "parallel_tool_calls": False,
        "messages": [
            {"role": "developer", "content": "be short"},
            {"role": "user", "content": [{"type": "text", "text": "hello"}]},
            {"role": "assistant", "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
        ],
    }
    silent = {
        "user": "me",
        "metadata": {"team": "red"},
        "store": False,
        "service_tier": "auto",
        "modalities": ["text"],
        "safety_identifier": "x",
        "prompt_cache_key": "y",
        "audio": None,
        "frequency_penalty": None,
    }

    assert validated(ChatSchema(), {**CHAT, **asked, **silent}) == {"model": "tiny", **asked}


def test_messages_of_answers_may_be_sent_again() -> None:
    answer: dict[str, Any] = {
        "role": "assistant",
        "content": "hello",
        "refusal": None,
        "annotations": [],
        "audio": None,
        "function_call": None,
        "tool_calls": None,
    }

    assert validated(ChatSchema(), {**CHAT, "messages": [*CHAT["messages"], answer]})["messages"][1] == {
        "role": "assistant",
        "content": "hello",
        "annotations": [],
    }


@pytest.mark.parametrize(
    ("schema", "body"),
    [
        *((CompletionSchema, {**TEXT, "prompt": prompt}) for prompt in ("", ["a", "b"], [1, 2], [[1], [2, 3]])),
        *((EmbeddingSchema, {**INPUT, "input": given}) for given in ("a", ["a", "b"], [1, 2], [[1], [2, 3]])),
        (CompletionSchema, {**TEXT, "n": 2, "best_of": 2, "logprobs": 0}),
        (EmbeddingSchema, {**INPUT, "encoding_format": "base64", "dimensions": 8}),
        (ChatSchema, {**CHAT, **schema_form({"type": "object", "properties": {"a": {"type": "string"}}})}),
        (ChatSchema, {**CHAT, "response_format": {"type": "json_object"}}),
    ],
)
def test_texts_and_tokens_stay_as_they_are(schema: type[Schema], body: dict[str, Any]) -> None:
    assert validated(schema(), body) == body


def test_prompt_alone_is_wanted_with_echo() -> None:
    asked = {**TEXT, "echo": True, "logprobs": 1, "max_tokens": 0}

    assert validated(CompletionSchema(), asked) == asked


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"query": ""}, "query"),
        ({"documents": []}, "documents"),
        ({"documents": "text"}, "documents"),
        ({"documents": ["a", ""]}, "documents.1"),
        ({"documents": ["a", {"title": "b"}]}, "documents.1"),
        ({"documents": ["a"] * 1025}, "documents"),
        ({"top_n": 0}, "top_n"),
        ({"max_tokens_per_doc": 0}, "max_tokens_per_doc"),
        ({"rank_fields": ["text"]}, "rank_fields"),
    ],
)
def test_bad_rerank(changes: dict[str, Any], param: str) -> None:
    with pytest.raises(BadShape) as caught:
        validated(RerankSchema(), {"model": "tiny", "query": "a", "documents": ["b"], **changes})

    assert [field for field, _ in caught.value.details] == [param]
