"""Defaults of built-in trainers for fields of ``data_config``."""

from collections.abc import Mapping
from typing import Any

from app.domain.spec.data.formats import format_of

SPLIT = "train"
PADDING = "longest"
TRUNCATION = True
MAX_SEQ_LENGTH = 1024
BATCH_SIZE = 8
NUM_WORKERS = 0
SEED = 42
SHUFFLE_BUFFER = 10_000


def completed(data: Mapping[str, Any], *, custom: bool) -> dict[str, Any]:
    """A copy with defaults filled in; for a custom script only formats by suffix are added."""
    found = {**data, "sources": [_source(source) for source in data["sources"]]}
    if custom:
        return found
    defaults = {
        "max_seq_length": MAX_SEQ_LENGTH,
        "batch_size": BATCH_SIZE,
        "gradient_accumulation_steps": 1,
        "num_workers": NUM_WORKERS,
        "validation_split": 0.0,
        "seed": SEED,
        "streaming": False,
    }
    found = {**defaults, **found}
    if found["streaming"]:
        found.setdefault("shuffle_buffer", SHUFFLE_BUFFER)
    found["preprocess"] = {"padding": PADDING, "truncation": TRUNCATION, **(found.get("preprocess") or {})}
    found["sources"] = [_with_defaults(source, found["seed"]) for source in found["sources"]]
    return found


def _source(source: Mapping[str, Any]) -> dict[str, Any]:
    detected = format_of(source["path"])
    return {**source, "format": detected} if detected is not None and not source.get("format") else dict(source)


def _with_defaults(source: Mapping[str, Any], seed: int) -> dict[str, Any]:
    found = {**source, "split": source.get("split") or SPLIT}
    if found.get("sampling"):
        found["sampling"] = {"seed": seed, **found["sampling"]}
    return found
