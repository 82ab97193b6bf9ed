"""The file `results.json` of an evaluation: for each benchmark the metrics, the number of samples, and what it took."""

import contextlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from app.domain.evaluations import catalog, open_metrics
from app.domain.evaluations.catalog import BadBenchmark, BenchmarkType
from app.domain.json_numbers import json_number

FILE = "results.json"
MAX_BYTES = 4 << 20
SAMPLES = "samples-{}.jsonl"  # by the benchmark's label
_COUNTS = ("n", "tokens")
_MOST = 2**53
_NAMES = ("NaN", "Infinity", "-Infinity")
Results = dict[str, dict[str, Any]]


def read(content: str | bytes, names: Iterable[str]) -> Results:
    """By label of a benchmark ``{"metrics": {NAME: {"value", "stderr"}}, "n", "seconds", "tokens"}``.

    ``names`` are the benchmarks of the evaluation. Numbers that are not finite are the strings NaN, Infinity and
    -Infinity. What else the file has is left out: a rank wrote it. Raises ValueError for one of another form.
    """
    try:
        values = json.loads(content)
    except RecursionError:
        raise ValueError(f"{FILE} is nested too deeply") from None
    benchmarks = _object(_object(values, FILE).get("benchmarks"), f"benchmarks of {FILE}")
    found: Results = {}
    for name in names:
        label = catalog.label(name)
        with contextlib.suppress(BadBenchmark):  # of another version
            kind = catalog.find(name)
            if label in benchmarks:
                found[label] = _one(label, kind, benchmarks[label])
    return found


def samples_file(label: str) -> str:
    """The artifact with the samples of a benchmark."""
    return SAMPLES.format(label)


def _one(label: str, kind: BenchmarkType, values: object) -> dict[str, Any]:
    found = _object(values, label)
    metrics = _object(found.get("metrics"), f"metrics of {label}")
    known = open_metrics.measured(kind, metrics)
    counts = {name: _finite(found.get(name)) for name in _COUNTS}
    took = _finite(found.get("seconds"))
    return {
        "metrics": {each.name: _metric(metrics[each.name]) for each in known},
        **{name: int(count) for name, count in counts.items() if count is not None},
        "seconds": round(took, 3) if took is not None else None,
    }


def _metric(found: object) -> dict[str, Any]:
    values: Mapping[str, object] = found if isinstance(found, dict) else {"value": found}
    return {name: _number(values.get(name)) for name in ("value", "stderr")}


def _number(value: object) -> float | str | None:
    if isinstance(value, str):
        return value if value in _NAMES else None
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        return json_number(float(value))
    except OverflowError:
        return None


def _finite(value: object) -> float | None:
    """A count or a duration."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= _MOST:
        return None
    return float(value)


def _object(value: object, what: str) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    raise ValueError(f"{what} is no JSON object")
