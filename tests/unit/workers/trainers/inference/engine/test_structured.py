"""Answers in the form that a schema or a regular expression asks for."""

import json
import re

import pytest

from workers.trainers.failures import InvalidConfig
from workers.trainers.inference.engine.interface import STOP, Prompt, SamplingParams
from workers.trainers.inference.engine.sampling import SampledPrompt

pytest.importorskip("llguidance")

SCHEMA = {
    "type": "object",
    "properties": {"kind": {"enum": ["bug", "idea"]}, "weight": {"type": "integer", "minimum": 10, "maximum": 99}},
    "required": ["kind", "weight"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_answers_match_a_regular_expression(engine, prompts, temperature):
    sampling = SamplingParams(
        max_new_tokens=16, temperature=temperature, response_format={"type": "regex", "pattern": "(yes|no), [0-9]{3}"}
    )

    found = engine.generate([Prompt(tokens=tokens, seed=7) for tokens in prompts[:4]], sampling)

    assert all(re.fullmatch("(yes|no), [0-9]{3}", each.text) for each in found)
    assert {each.finish_reason for each in found} == {STOP}


def test_answers_follow_a_json_schema(engine, prompts):
    sampling = SamplingParams(
        max_new_tokens=40, temperature=1.0, response_format={"type": "json_schema", "schema": SCHEMA}
    )

    found = engine.generate([Prompt(tokens=tokens, seed=seed) for seed, tokens in enumerate(prompts[:4])], sampling)

    answers = [json.loads(each.text) for each in found]
    assert all(each["kind"] in ("bug", "idea") and 10 <= each["weight"] <= 99 for each in answers)


@pytest.mark.parametrize(
    ("response_format", "named"),
    [
        ({"type": "xml"}, "response_format.type 'xml'"),
        ({"type": "regex", "pattern": "(("}, "regex parse error"),
        ({"type": "regex"}, "response_format.pattern"),
        ({"type": "json_schema"}, "response_format.schema"),
        ({"type": "json_schema", "schema": {"type": "tree"}}, "tree"),
    ],
)
def test_formats_that_can_not_be_applied_are_refused(engine, prompts, response_format, named):
    with pytest.raises(InvalidConfig, match=re.escape(named)):
        engine.generate([Prompt(tokens=prompts[0])], SamplingParams(max_new_tokens=4, response_format=response_format))


def recursive(count):
    """A mask of it takes the cube of `count`."""
    alternatives = [{"type": "array", "items": {"$ref": "#"}, "minItems": each % 3} for each in range(count)]
    return {"type": "json_schema", "schema": {"anyOf": alternatives}}


@pytest.mark.parametrize(
    ("response_format", "named"),
    [
        (recursive(800), "bytes"),
        (recursive(100), "99 alternatives"),
        ({"type": "json_schema", "schema": {"allOf": [recursive(8)["schema"]] * 5}}, "can't be applied"),
    ],
)
def test_formats_that_would_hold_up_other_requests_are_refused(engine, response_format, named):
    with pytest.raises(InvalidConfig, match=named):
        engine.sampler(SamplingParams(max_new_tokens=4, response_format=response_format), is_shared=True)


def test_optional_fields_are_no_alternatives(engine):
    fields = {f"field_{each}": {"anyOf": [{"type": "string"}, {"type": "null"}]} for each in range(100)}
    form = {"type": "json_schema", "schema": {"type": "object", "properties": fields, "required": list(fields)}}

    assert engine.sampler(SamplingParams(max_new_tokens=4, response_format=form), is_shared=True)


def test_answers_of_one_request_share_a_format(engine, prompts):
    sampling = SamplingParams(
        max_new_tokens=40, temperature=1.0, response_format={"type": "json_schema", "schema": SCHEMA}
    )
    sampler = engine.sampler(sampling, is_shared=True)

    requests = [Prompt(tokens=tokens, seed=seed) for seed, tokens in enumerate(prompts[:4])]
    found = engine.generation().answer([SampledPrompt(each, sampler) for each in requests], lambda: False)

    assert [each.text for each in found] == [each.text for each in engine.generate(requests, sampling)]
