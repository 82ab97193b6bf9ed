"""The files of an evaluation: samples and figures of each benchmark, and `results.json` of all."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from app.domain.evaluations import catalog
from app.domain.evaluations.results import FILE, samples_file
from app.domain.evaluations.statistics import Estimate, estimate
from app.domain.json_numbers import json_number
from app.domain.spec.frameworks.requirements import EVALUATE
from app.domain.spec.inference import LM_EVAL, Benchmark
from trainyard.protocol.checkpoint_manifest import CorruptCheckpoint
from workers.rank.run_context import RunSpec
from workers.trainers.inference.evaluation.measure import Measurement
from workers.trainers.inference.output_manifest import described_model
from workers.trainers.inference.section import inference_of

_LIBRARIES = ("torch", "transformers", "tokenizers")


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What a benchmark has measured; ``number`` is its index in the job's document."""

    number: int
    name: str
    metrics: Mapping[str, Estimate]
    n: int
    prompt_tokens: int
    completion_tokens: int
    seconds: float

    @property
    def label(self) -> str:
        return catalog.label(self.name)

    @property
    def values(self) -> dict[str, float]:
        """By the names of a job's metrics."""
        return {f"bench/{self.label}/{name}": found.value for name, found in self.metrics.items()}

    def to_json(self) -> dict[str, Any]:
        """An entry of `results.json`."""
        return {
            "name": self.name,
            "metrics": {name: _shown(found) for name, found in self.metrics.items()},
            "n": self.n,
            "seconds": self.seconds,
            "tokens": self.prompt_tokens + self.completion_tokens,
        }


def figures_of(number: int, benchmark: Benchmark, measured: Measurement, seconds: float, seed: int) -> Figures:
    """The metrics of the benchmark over all samples that have them, or those that it has found itself."""
    metrics = dict(measured.estimates)
    for metric in catalog.as_measured(benchmark.name, benchmark.parameters).metrics:
        scores = [each.scores[metric.name] for each in measured.samples if metric.name in each.scores]
        found = estimate(metric, scores, seed)
        exact = measured.values.get(metric.name)
        metrics[metric.name] = found if exact is None else Estimate(exact, found.stderr)
    return Figures(
        number=number,
        name=benchmark.name,
        metrics=metrics,
        n=len(measured.samples),
        prompt_tokens=measured.prompt_tokens,
        completion_tokens=measured.completion_tokens,
        seconds=round(seconds, 3),
    )


def figures_file(number: int) -> str:
    """Left in the output only until the last benchmark is measured."""
    return f"figures-{number:05}.json"


def write_part(directory: Path, figures: Figures, measured: Measurement) -> None:
    """Fill a new ``directory`` with the files of one benchmark."""
    directory.mkdir(parents=True)
    # A lone surrogate, which UTF-8 can't hold, becomes an escape of JSON.
    with (directory / samples_file(figures.label)).open("w", encoding="utf-8", errors="backslashreplace") as file:
        file.writelines(f"{sample.to_line()}\n" for sample in measured.samples)
    (directory / figures_file(figures.number)).write_text(json.dumps(asdict(figures), sort_keys=True), encoding="utf-8")


def read_figures(directory: Path, number: int) -> Figures:
    """Those of a finished benchmark. Raises CorruptCheckpoint."""
    name = figures_file(number)
    try:
        values = json.loads((directory / name).read_text(encoding="utf-8"))
        return Figures(**{**values, "metrics": {key: Estimate(**found) for key, found in values["metrics"].items()}})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CorruptCheckpoint(name, f"the figures of a finished benchmark can't be read ({error})") from error


def write_results(spec: RunSpec, output: Path, figures: Sequence[Figures]) -> None:
    """Write `results.json` of all benchmarks, also in the form of EleutherAI's harness, and remove their own files."""
    section = inference_of(spec)
    document = {
        "benchmarks": {each.label: each.to_json() for each in figures},
        "config": {
            "model": described_model(spec),
            "seed": section.seed,
            "benchmarks": [{**each.to_json(), "parameters": catalog.values(each)} for each in section.benchmarks],
            "versions": {name: version(name) for name in _libraries(section.benchmarks)},
        },
        "results": {each.label: _as_harness(each) for each in figures},
        "n-samples": {each.label: {"original": each.n, "effective": each.n} for each in figures},
    }
    text = json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    (output / FILE).write_text(text, encoding="utf-8", errors="backslashreplace")
    for each in figures:
        (output / figures_file(each.number)).unlink()


def _libraries(benchmarks: Sequence[Benchmark]) -> Iterator[str]:
    """Those that figures depend on."""
    yield from _LIBRARIES
    if any(each.name.partition(":")[0] == LM_EVAL for each in benchmarks):
        yield EVALUATE.module


def _shown(found: Estimate) -> dict[str, Any]:
    return {name: None if value is None else json_number(value) for name, value in found.to_json().items()}


def _as_harness(figures: Figures) -> dict[str, Any]:
    found: dict[str, Any] = {"alias": figures.label}
    for name, metric in figures.metrics.items():
        shown = _shown(metric)
        base, _, chosen = name.partition(".")
        found[f"{base},{chosen or 'none'}"] = shown["value"]
        found[f"{base}_stderr,{chosen or 'none'}"] = "N/A" if shown["stderr"] is None else shown["stderr"]
    return found
