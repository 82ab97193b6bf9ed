"""The place of vLLM among the engines: no node offers it yet."""

from typing import NoReturn

from app.domain.spec.inference import TRANSFORMERS, VLLM
from workers.rank.run_context import RunSpec
from workers.trainers.failures import InvalidConfig


class VllmEngine:
    """Refuses every job: vLLM needs an interpreter of its own, because its versions of torch contradict ours."""

    def __init__(self, spec: RunSpec) -> NoReturn:
        raise InvalidConfig(
            f"training_config.framework.type {VLLM}: this node ({spec.node or 'local'}) has no vllm; use {TRANSFORMERS}"
        )
