"""The document of a service, as it is stored in ``service.spec``."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from app.domain.spec.inference import EMBED, GENERATE, SCORE
from app.domain.spec.model import ResourceConfig, SchedulingConfig
from app.domain.spec.section import Section

TASKS = (GENERATE, EMBED, SCORE)
AUTO, TRANSFORMERS, VLLM = "auto", "transformers", "vllm"
ENGINES = (AUTO, TRANSFORMERS, VLLM)
NOT_LOGGED, SAMPLE = "none", "sample:"  # ServiceDocument.log
PROJECT, NONE = "project", "none"  # ServedAdapters.source


@dataclass(frozen=True, kw_only=True)
class Replicas(Section):
    """How many copies run. With ``min`` 0 the last one ends after ``idle_seconds`` without requests."""

    min: int = 0
    max: int = 1
    target_in_flight: int = 16  # requests of one replica, above which another one is started
    idle_seconds: int = 600


@dataclass(frozen=True, kw_only=True)
class ServedAdapters(Section):
    """``project``: adapters that jobs of the project have trained on the service's model are loaded when asked for."""

    source: str = PROJECT  # `from` on the wire
    max_loaded: int = 32
    max_rank: int = 64


@dataclass(frozen=True, kw_only=True)
class ServiceLimits(Section):
    """``max_context`` None: the model's own. A request without a limit gets up to ``max_output_tokens``."""

    max_context: int | None = None
    max_output_tokens: int = 2048
    max_waiting: int = 200  # requests held while no replica answers
    cold_start_seconds: int = 180  # that a request is held at most


@dataclass(frozen=True, kw_only=True)
class ServiceDocument(Section):
    """``model`` is the reference of the request (`job_id`, `checkpoint`, `model_uri`, …), ``defaults`` are values of
    requests that leave them out: temperature, top_p, top_k, min_p, repetition_penalty.
    """

    name: str = ""
    model: Mapping[str, Any] = field(default_factory=dict)
    task: str = GENERATE
    adapters: ServedAdapters = ServedAdapters()
    replicas: Replicas = Replicas()
    engine: str = AUTO
    limits: ServiceLimits = ServiceLimits()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    resource_config: ResourceConfig = ResourceConfig()
    scheduling_config: SchedulingConfig = SchedulingConfig()
    environment: Mapping[str, str] = field(default_factory=dict)
    log: str = NOT_LOGGED  # or sample:SHARE

    @property
    def logged_share(self) -> float:
        """Of requests, which are stored with their answers in the project's storage."""
        return float(self.log.removeprefix(SAMPLE)) if self.log.startswith(SAMPLE) else 0.0
