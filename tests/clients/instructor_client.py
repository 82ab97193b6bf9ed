"""Instructor: answers as objects of a class, by tools, by a schema and in a stream. The argument is the model."""

import sys
from typing import Literal

import instructor
from openai import OpenAI
from pydantic import BaseModel, ConfigDict

MODEL = sys.argv[1]
MESSAGES = [{"role": "user", "content": "It breaks when I press the button."}]


class Report(BaseModel):
    # Other fields would be allowed, and a model that has learned nothing writes them without an end.
    model_config = ConfigDict(extra="forbid")
    kind: Literal["bug", "feature"]


with OpenAI(timeout=150) as openai:
    for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
        client = instructor.from_openai(openai, mode=mode)
        report = client.chat.completions.create(
            model=MODEL, messages=MESSAGES, response_model=Report, max_retries=0, max_tokens=80
        )
        whole, raw = client.chat.completions.create_with_completion(
            model=MODEL, messages=MESSAGES, response_model=Report, max_retries=0, max_tokens=80
        )
        partial = list(
            client.chat.completions.create_partial(
                model=MODEL, messages=MESSAGES, response_model=Report, max_retries=0, max_tokens=80
            )
        )

        assert isinstance(report, Report), mode
        assert isinstance(whole, Report), mode
        assert raw.usage.completion_tokens <= 80, mode
        assert partial[-1].kind in {"bug", "feature"}, mode
sys.stdout.write("done\n")
