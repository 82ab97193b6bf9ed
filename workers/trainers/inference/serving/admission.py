"""Which requests have no answer, before anything is computed."""

from dataclasses import replace

from workers.trainers.inference.engine.interface import RequestRefused
from workers.trainers.inference.engine.refusing import CONTEXT_TOO_LONG, EngineLimits
from workers.trainers.inference.engine.transformers_engine import TransformersEngine
from workers.trainers.inference.serving.requests import GenerationRequest

ADAPTER_NOT_LOADED, ENGINE_ENDED = "ADAPTER_NOT_LOADED", "ENGINE_ENDED"


def limits_of(engine: TransformersEngine, most: int | None) -> EngineLimits:
    """Of requests; ``most``: tokens of prompt and answer that the service allows."""
    limits = engine.limits(engine.generation() if engine.generates else None)
    return replace(limits, context=min(limits.context, most or limits.context))


def refuse(request: GenerationRequest, limits: EngineLimits) -> RequestRefused | None:
    """None: the request can be answered."""
    prompt, new = len(request.prompt), request.sampling.max_new_tokens
    refused = limits.refuse(request.prompt, new)
    if refused is None or refused.code != CONTEXT_TOO_LONG:
        return refused
    most, what = limits.context, "the context"
    if limits.held is not None and limits.held < most:
        most, what = limits.held, "the memory for a request"
    return RequestRefused(
        code=CONTEXT_TOO_LONG,
        message=f"{what} holds {most} tokens, but the prompt has {prompt} and the answer may have {new}; shorten the "
        "prompt, or ask for fewer tokens",
    )
