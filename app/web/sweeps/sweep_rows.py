"""Rows of the form of a sweep: one for each parameter, each constraint and each evaluation that trials plan."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from app.domain.evaluations.catalog import BENCHMARKS
from app.domain.sweeps.benchmarks import PREFIX
from app.schemas.spec.benchmarks import BenchmarkSchema, PlannedEvaluationSchema
from app.schemas.tuning.sweeps import ConstraintSchema
from app.web import job_form
from app.web.evaluation_form import benchmark_fields
from app.web.job_form import FormField, field_at

PARAMETERS, CONSTRAINTS, EVALUATIONS = "parameters", "constraints", "job.training_config.evaluations"
CONSTRAINT: Mapping[str, Any] = {"metric": ""}
EVALUATION: Mapping[str, Any] = {"on": "end", "benchmarks": [{"name": "perplexity", "dataset": ""}]}
_KINDS = ("double", "int", "categorical", "bool")
_SCALES = ("linear", "log")


@dataclass(frozen=True, kw_only=True)
class SweepRow:
    """``key``: its name or number in the document."""

    key: str
    title: str
    fields: Sequence[FormField]
    meaning: str = ""


@dataclass(frozen=True, kw_only=True)
class SuggestedParameter:
    """A hyperparameter of the method, and what it may be to begin with."""

    name: str
    meaning: str
    start: Mapping[str, Any]


def parameters(names: Sequence[str], training_type: str, framework: str) -> list[SweepRow]:
    meanings = {each.name: each.meaning for each in suggestions(training_type, framework)}
    return [
        SweepRow(key=name, title=name, meaning=meanings.get(name, ""), fields=list(_parameter(name, names)))
        for name in names
    ]


def constraints(count: int) -> list[SweepRow]:
    return [
        SweepRow(key=str(number), title=f"Constraint {number + 1}", fields=list(_constraint(number)))
        for number in range(count)
    ]


def evaluations(count: int) -> list[SweepRow]:
    return [
        SweepRow(key=str(number), title=f"Evaluation {number + 1}", fields=list(_evaluation(number)))
        for number in range(count)
    ]


def benchmark_metrics() -> list[str]:
    """What an objective or a constraint may name of evaluations, but for benchmarks with an argument."""
    known = (each for each in BENCHMARKS.values() if not each.takes_argument)
    return [f"{PREFIX}{each.name}/{metric.name}" for each in known for metric in each.metrics]


def suggestions(training_type: str, framework: str) -> list[SuggestedParameter]:
    """What a job of this method may vary; any texts may be asked for."""
    return [
        SuggestedParameter(name=each["name"], meaning=each["meaning"], start=start_of(each, None))
        for each in job_form.hyperparameters_of(training_type, framework)
    ]


def start_of(entry: Mapping[str, Any], own: object) -> dict[str, Any]:
    """What a hyperparameter may be to begin with: around its own value or the default, within the trainer's range."""
    if entry["type"] == "bool":
        return {"type": "bool"}
    if entry["choices"]:
        return {"type": "categorical", "values": list(entry["choices"])}
    if entry["type"] not in ("int", "float"):
        return {"type": "categorical", "values": []}
    kind, factor = ("int", 2) if entry["type"] == "int" else ("double", 10)
    centre = _number(own) or _number(entry["default"]) or 0.0
    if centre <= 0:
        return {"type": kind}
    lowest, highest = centre / factor, centre * factor
    if entry["minimum"] is not None:
        lowest = max(lowest, entry["minimum"])
    if entry["maximum"] is not None:
        highest = min(highest, entry["maximum"])
    if kind == "int":
        return {"type": kind, "min": max(1, round(lowest)), "max": round(highest)}
    return {"type": kind, "min": float(f"{lowest:.3g}"), "max": float(f"{highest:.3g}"), "scale": "log"}


def _parameter(name: str, names: Sequence[str]) -> Iterator[FormField]:
    at = f"{PARAMETERS}.{name}"
    yield FormField(path=f"{at}.type", kind="choice", meaning="double: any number", choices=_KINDS, title="Kind")
    yield FormField(path=f"{at}.min", kind="number", meaning="Of a range", title="Lowest")
    yield FormField(path=f"{at}.max", kind="number", meaning="Of a range", title="Highest")
    yield FormField(path=f"{at}.step", kind="number", meaning="Between values, from the lowest", title="Step")
    scale = "log: each power of ten has the same chance"
    yield FormField(path=f"{at}.scale", kind="choice", meaning=scale, choices=_SCALES, default="linear", title="Scale")
    yield FormField(path=f"{at}.values", kind="values", meaning="Instead of a range, with commas", title="Values")
    if len(names) > 1:
        other = next(each for each in names if each != name)
        yield FormField(
            path=f"{at}.only_if",
            kind="cases",
            meaning=f"Other parameters and their values, such as {other}=a, b; all have to hold",
            title="Only if",
        )


def _constraint(number: int) -> Iterator[FormField]:
    at = f"{CONSTRAINTS}.{number}"
    metric = field_at("metric", ConstraintSchema).below(at)
    yield replace(metric, suggests_as="objective.metric", meaning="A metric of the trials, as of the objective")
    yield from (field_at(name, ConstraintSchema).below(at) for name in ("at_most", "at_least", "select"))


def _evaluation(number: int) -> Iterator[FormField]:
    """Of its first benchmark: further ones stand in the document."""
    at = f"{EVALUATIONS}.{number}"
    first = f"{at}.benchmarks.0"
    yield from benchmark_fields(first, "What is measured; further ones of the same evaluation stand in the document")
    yield field_at("on", PlannedEvaluationSchema, title="Measured").below(at)
    yield field_at("num_samples", BenchmarkSchema, title="Records").below(first)
    options = "One NAME=VALUE per line, such as max_new_tokens=16"
    yield FormField(path=f"{first}.parameters", kind="options", meaning=options, title="Parameters of the benchmark")


def _number(value: object) -> float | None:
    try:
        return float(value) if isinstance(value, str | int | float) else None
    except ValueError:
        return None
