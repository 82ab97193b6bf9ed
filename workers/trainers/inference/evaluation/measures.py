"""The measures: one line for each kind of benchmark."""

import importlib

from app.domain.evaluations import catalog
from app.domain.evaluations.catalog import BadBenchmark
from app.domain.spec.frameworks.requirements import EVALUATE
from app.domain.spec.inference import LM_EVAL, Benchmark
from workers.trainers.failures import InvalidConfig
from workers.trainers.inference.evaluation.measure import Measure

_PACKAGE = "workers.trainers.inference.evaluation"
GENERATION = "generation"
# Modules with a function `measure`; each imports only what its benchmarks need.
MODULES = {
    catalog.LOSS: "trained_loss",
    catalog.PERPLEXITY: "trained_loss",
    catalog.CHOICES: "choices",
    catalog.PREFERENCE: "preference",
    LM_EVAL: "harness.measuring",
    **{found.name: GENERATION for found in catalog.BENCHMARKS.values() if found.generates},
}


def measure_of(benchmark: Benchmark) -> Measure:
    """Raises InvalidConfig for a benchmark that can't be measured."""
    try:
        catalog.check(benchmark)
    except BadBenchmark as error:
        raise InvalidConfig(f"benchmark {benchmark.name}: {error.field}: {error.message}") from error
    try:
        module = importlib.import_module(f"{_PACKAGE}.{MODULES[catalog.find(benchmark.name).name]}")
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] != EVALUATE.module:
            raise
        raise InvalidConfig(f"benchmark {benchmark.name} needs {EVALUATE.module}: {EVALUATE.command}") from error
    found: Measure = module.measure
    return found
