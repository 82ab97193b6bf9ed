"""The file `results.json` of an evaluation: for each benchmark the metrics, the number of samples, and what it took."""

import json
import math
from collections.abc import Mapping
from typing import Any

from app.domain.json_numbers import json_number

FILE = "results.json"
MAX_BYTES = 4 << 20
SAMPLES = "samples-{}.jsonl"  # by the benchmark's label
_COUNTS = ("n", "tokens")
_NAMES = ("NaN", "Infinity", "-Infinity")
Results = dict[str, dict[str, Any]]


def read(content: str | bytes) -> Results:
    """By label of a benchmark ``{"metrics": {NAME: {"value", "stderr"}}, "n", "seconds", "tokens"}``.

    Numbers that are not finite are the strings NaN, Infinity and -Infinity. What else the file has is left out: a rank
    wrote it. Raises ValueError for one of another form.
    """
    benchmarks = _object(_object(json.loads(content), FILE).get("benchmarks"), f"benchmarks of {FILE}")
    return {str(label)[:256]: _one(str(label), found) for label, found in benchmarks.items()}


def samples_file(label: str) -> str:
    """The artifact with the samples of a benchmark."""
    return SAMPLES.format(label)


def _one(label: str, values: object) -> dict[str, Any]:
    found = _object(values, label[:80])
    metrics = _object(found.get("metrics"), f"metrics of {label[:80]}")
    counts = {name: _finite(found.get(name)) for name in _COUNTS}
    took = _finite(found.get("seconds"))
    return {
        "metrics": {str(name)[:128]: _metric(metric) for name, metric in metrics.items()},
        **{name: int(count) for name, count in counts.items() if count is not None},
        "seconds": round(took, 3) if took is not None else None,
    }


def _metric(found: object) -> dict[str, Any]:
    values: Mapping[str, object] = found if isinstance(found, dict) else {"value": found}
    return {name: _number(values.get(name)) for name in ("value", "stderr")}


def _number(value: object) -> float | str | None:
    if value in _NAMES:
        return str(value)
    return json_number(float(value)) if isinstance(value, int | float) else None


def _finite(value: object) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        return None
    return float(value)


def _object(value: object, what: str) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    raise ValueError(f"{what} is no JSON object")
