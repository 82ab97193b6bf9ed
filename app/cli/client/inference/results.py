"""Results of evaluations and their comparisons in words: values with standard errors, differences with intervals."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from app.cli.output import print_table
from trainyard.records import (
    BenchmarkResult,
    ComparedMetric,
    Difference,
    Evaluation,
    EvaluationComparison,
    Figure,
    Verdict,
)

_COLUMNS = ("difference", "95 % interval", "p", "samples", "changed")  # of a difference
_SIGNED = "+.3g"


def model(found: Evaluation) -> str:
    """``job-… at ckpt-…``, or the model's URI."""
    asked: Mapping[str, Any] = found["model"] or {}
    name = str(asked.get("job_id") or asked.get("model_uri") or "")
    return f"{name} at {found['checkpoint_id']}" if found["checkpoint_id"] else name


def summary(found: Evaluation) -> str:
    """The first metric of each benchmark in one line: ``perplexity 12.31, choices accuracy 0.615``."""
    parts = []
    for name, result in found["results"].items():
        for metric, measured in list(result["metrics"].items())[:1]:
            label = name if metric == name else f"{name} {metric}"
            parts.append(f"{label} {value(measured['value'])}")
    return ", ".join(parts)


def print_results(results: Mapping[str, BenchmarkResult]) -> None:
    rows = [row for name, result in results.items() for row in _rows(name, result)]
    print_table(("benchmark", "metric", "value", "samples", "seconds"), rows, empty="no results yet")


def passed(found: Evaluation) -> str:
    """``yes``, ``no``, or nothing where nothing is required or the evaluation has not completed."""
    return "" if found["passed"] is None else "yes" if found["passed"] else "no"


def print_verdicts(verdicts: Sequence[Verdict]) -> None:
    """A row for each requirement; nothing without any."""
    if verdicts:
        rows = [
            (each["metric"], _required(each), value(each["value"]), "yes" if each["passed"] else "no")
            for each in verdicts
        ]
        click.echo()
        print_table(("metric", "required", "value", "passed"), rows, empty="")


def _required(verdict: Verdict) -> str:
    """``>= 0.8, at most 0.01 worse than 0.75 of job-…``."""
    bounds = ((">=", verdict["min"]), ("<=", verdict["max"]))
    parts = [f"{sign} {value(bound)}" for sign, bound in bounds if bound is not None]
    if verdict["baseline"] is not None:
        measured, margin = value(verdict["baseline_value"]), value(verdict["margin"])
        parts.append(f"at most {margin} worse than {measured} of {verdict['baseline']}")
    return ", ".join(parts)


def print_comparison(found: EvaluationComparison, names: Mapping[str, str]) -> None:
    """A row for each metric and each evaluation besides the baseline; ``names`` are column heads by id."""
    baseline = found["baseline"]
    for each in [each for each in _ids(found) if each != baseline]:
        rows = [row for metric in found["comparisons"] if (row := _compared(metric, baseline, each))]
        heads = ("benchmark", "metric", names.get(each, each), names.get(baseline, baseline), *_COLUMNS)
        print_table(heads, rows, empty="nothing in common")
    for note in dict.fromkeys(_notes(found)):
        click.echo(f"Note: {note}", err=True)


def value(number: Figure, form: str = ".4g") -> str:
    """A number in the format ``form``; "NaN" and infinities are texts."""
    return "–" if number is None else f"{number:{form}}" if isinstance(number, int | float) else number


def _rows(name: str, result: BenchmarkResult) -> Iterator[Sequence[Any]]:
    for metric, measured in result["metrics"].items():
        error, shown = measured.get("stderr"), value(measured["value"])
        shown = shown if error is None else f"{shown} ± {value(error, '.2g')}"
        yield name, metric, shown, result["n"], value(result["seconds"], ".1f")


def _ids(found: EvaluationComparison) -> list[str]:
    return list(dict.fromkeys(each for metric in found["comparisons"] for each in metric["values"]))


def _compared(metric: ComparedMetric, baseline: str, evaluation_id: str) -> Sequence[Any] | None:
    """The row of one metric, unless one of both has not measured it."""
    values = metric["values"]
    difference = next((each for each in metric["differences"] if each["id"] == evaluation_id), None)
    if values.get(evaluation_id) is None or values.get(baseline) is None:
        return None
    shown = (metric["benchmark"], metric["metric"], value(values[evaluation_id]), value(values[baseline]))
    return *shown, *(_difference(difference) if difference else [""] * len(_COLUMNS))


def _difference(found: Difference) -> Sequence[Any]:
    ends = [value(end, _SIGNED) for end in found["interval"] or ()]
    p_value = found["p_value"]
    return (
        value(found["difference"], _SIGNED),
        f"[{', '.join(ends)}]" if ends else "",
        "" if p_value is None else value(p_value, ".2g"),
        found["n"],
        "" if p_value is None else found["changes"],
    )


def _notes(found: EvaluationComparison) -> Iterator[str]:
    for metric in found["comparisons"]:
        for note in metric["notes"]:
            yield f"{metric['benchmark']}: {note}"
