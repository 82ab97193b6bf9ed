"""The engines of inference jobs: one line for each, by training_config.framework.type."""

import importlib

from app.domain.spec.inference import TRANSFORMERS, VLLM
from workers.rank.run_context import Ask, RunSpec
from workers.trainers.failures import InvalidConfig
from workers.trainers.inference.engine.interface import Engine
from workers.trainers.inference.engine.service_engine import ServiceEngine
from workers.trainers.inference.section import inference_of

ENGINES = {
    TRANSFORMERS: "workers.trainers.inference.engine.transformers_engine:TransformersEngine",
    VLLM: "workers.trainers.inference.engine.vllm_engine:VllmEngine",
}


def load_engine(spec: RunSpec, ask: Ask | None = None) -> Engine:
    """The engine that the job names, with its model loaded; of a job that asks a service, one that sends all requests
    by ``ask``. Raises InvalidConfig and ModelNotFound.
    """
    if ask is not None and (service := inference_of(spec).model.service) is not None:
        return ServiceEngine(spec, service, ask)
    try:
        module, _, name = ENGINES[spec.framework].partition(":")
    except KeyError:
        known = ", ".join(sorted(ENGINES))
        raise InvalidConfig(f"training_config.framework.type: no engine {spec.framework!r}; known: {known}") from None
    engine: Engine = getattr(importlib.import_module(module), name)(spec)
    return engine
