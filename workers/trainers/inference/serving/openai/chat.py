"""Chat completions: messages to a prompt by the model's template, the answer as a message."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from workers.trainers.inference.serving.openai.asking import CHAT, Asking
from workers.trainers.inference.serving.openai.chance import Chance
from workers.trainers.inference.serving.openai.choices import ChatChoice
from workers.trainers.inference.serving.openai.sampling_options import response_format_of, sampling_of, seeds_of
from workers.trainers.inference.serving.openai.served_model import ServedModel
from workers.trainers.inference.serving.openai.tool_calls import tools_of
from workers.trainers.inference.serving.requests import GenerationRequest

_MESSAGES = "messages"
_ROLES = {"developer": "system"}  # as templates name them


def chat(body: Mapping[str, Any], adapter: str | None, model: ServedModel, chance: Chance) -> Asking:
    """Raises AnswerProblem."""
    tools = tools_of(body, model.chat_template)
    record: dict[str, Any] = {"prompt": [_message(each) for each in body[_MESSAGES]]}
    if tools.given:
        record["tools"] = list(tools.given)
    prompt = model.prompt(record, _MESSAGES)
    top_logprobs = (body.get("top_logprobs") or 0) if body.get("logprobs") else None
    sampling = sampling_of(
        body,
        model,
        new=model.answer_length(len(prompt), body),
        top_logprobs=top_logprobs,
        response_format=tools.response_format or response_format_of(body),
    )
    requests = [
        GenerationRequest(prompt=prompt, sampling=sampling, seed=seed, adapter=adapter)
        for seed in seeds_of(body, chance.seed)
    ]
    texts = None if top_logprobs is None else model.texts
    return Asking(
        object=CHAT,
        fingerprint=model.fingerprints.of(adapter),
        param=_MESSAGES,
        requests=requests,
        choices=[ChatChoice(index, tools.text(), texts, chance) for index in range(len(requests))],
        prompt_tokens=len(prompt),
        body=body,
        chance=chance,
    )


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message as templates expect it: one text, and arguments of calls as objects."""
    found = {**message, "role": _ROLES.get(message["role"], message["role"])}
    found["content"] = _text(message.get("content"))
    if message.get("tool_calls"):
        found["tool_calls"] = [_call(each) for each in message["tool_calls"]]
    return found


def _text(content: str | Sequence[Mapping[str, Any]] | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(str(part.get("text", "")) for part in content)


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = dict(call["function"])
    try:
        function["arguments"] = json.loads(function["arguments"])
    except (KeyError, TypeError, ValueError):
        # The model has made them, and a template may take them as they are.
        return {**call, "function": function}
    return {**call, "function": function}
