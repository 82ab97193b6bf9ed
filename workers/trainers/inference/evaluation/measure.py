"""What a measure gets, and what it returns for a benchmark."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.domain.evaluations import catalog
from app.domain.evaluations.samples import Sample
from app.domain.evaluations.statistics import Estimate
from app.domain.spec.inference import Benchmark
from workers.rank.run_context import Ask, RunSpec
from workers.trainers.inference.engine.interface import Engine


@dataclass(frozen=True, kw_only=True)
class BenchmarkTask:
    """A benchmark to measure with a loaded engine. ``interrupted`` is asked between batches.

    ``ask`` asks a model that the job's document names, as `RunContext.ask`.
    """

    spec: RunSpec
    engine: Engine
    benchmark: Benchmark
    seed: int
    interrupted: Callable[[], bool]
    ask: Ask

    @property
    def parameters(self) -> dict[str, Any]:
        """All parameters, with their defaults."""
        return catalog.values(self.benchmark)


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """``values`` replaces what would be computed from the samples, where that is another figure in its last bits.

    ``estimates`` are all figures of a benchmark that knows its metrics only when it has measured.
    """

    samples: Sequence[Sample]
    prompt_tokens: int = 0
    completion_tokens: int = 0
    values: Mapping[str, float] = field(default_factory=dict)
    estimates: Mapping[str, Estimate] = field(default_factory=dict)


# Raises Interrupted, DataNotFound, DataInvalid, InvalidConfig, RewardFailed, JudgeUnavailable.
Measure = Callable[[BenchmarkTask], Measurement]
