"""What `trainyard eval run` asks for: models and benchmarks as they are written on the command line."""

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from app.cli.handles import JobHandle, job_id_of
from app.domain.ids import JOB_ID
from app.domain.spec.inference import TASK_DIR
from trainyard.client import Client

BASE = "base"  # as a model: that which a job's training began with
CHECKPOINTS = ("best", "latest")
_SERVICE = "service:"
_JOB = "job:"  # before the name of a job or the end of its id, which could be those of a directory
_LAST = "@last"
# Fields of an evaluation's `model` that say which base model it is and how it is loaded; credentials are never shown.
OF_BASE_MODELS = (
    *("revision", "source", "tokenizer_id", "storage_options", "dtype", "trust_remote_code", "model_kwargs"),
)
# The model in the other form of a request.
_FLAT = {"job_id": "job_id", "model_uri": "model_uri", "checkpoint_id": "checkpoint"}
# custom:/path/metric.py and lm_eval:TASK have colons of their own.
_NAMED = re.compile(r"(?P<name>custom:.+?\.py|lm_eval:[^:]+|[^:]+)(?::(?P<dataset>.+))?")
_REQUIRED = re.compile(r"(?P<metric>[^<>=]+)(?P<sign>>=|<=)(?P<bound>[^<>=]+)")
_BOUNDS = {">=": "min", "<=": "max"}  # fields of a requirement


def model_of(text: str) -> dict[str, Any]:
    """A job or a checkpoint of it, ``service:NAME``, or a model's id, directory or URI.

    A job is its whole id, ``@last`` or ``job:HANDLE``; ``with_whole_id`` asks the server for the id of the latter two.
    """
    if text.startswith(_SERVICE):
        return {"service": text.removeprefix(_SERVICE)}
    handle, at, checkpoint = text.removeprefix(_JOB).rpartition("@")
    if not handle or (text.startswith(_JOB) and not _is_checkpoint(checkpoint)):
        handle, at, checkpoint = text.removeprefix(_JOB), "", ""
    if not (text.startswith(_JOB) or handle == _LAST or JOB_ID.fullmatch(handle)):
        return {"model_uri": placed(text)}
    if at and not _is_checkpoint(checkpoint):
        raise click.BadParameter(f"{text!r}: write JOB@best, JOB@latest or JOB@CHECKPOINT, or JOB for its result")
    return {"job_id": JobHandle().convert(handle, None, None), **({"checkpoint": checkpoint} if at else {})}


def with_whole_id(client: Client, model: Mapping[str, Any]) -> dict[str, Any]:
    """A model of ``model_of`` with the job's whole id. Raises NotFound and AmbiguousHandle."""
    return {**model, **({"job_id": job_id_of(client, model["job_id"])} if "job_id" in model else {})}


def with_model(document: Mapping[str, Any], text: str | None) -> dict[str, Any]:
    """The request with its model in one form, of the command line or the file. Raises UsageError for both, or none."""
    flat = {ours: document[theirs] for theirs, ours in _FLAT.items() if document.get(theirs)}
    named = document.get("model") or flat
    if text is not None and named:
        raise click.UsageError("the file names a model, too; leave MODEL or that of the file out")
    if text is None and not named:
        raise click.UsageError(
            "name a MODEL: a job's id, @last or job:NAME, each with @best or @CHECKPOINT behind it, service:NAME, a "
            "model's id, directory or URI"
        )
    rest = {name: value for name, value in document.items() if name not in (*_FLAT, "model")}
    return {**rest, "model": model_of(text) if text is not None else named}


def benchmark_of(text: str) -> dict[str, Any]:
    """``NAME`` or ``NAME:DATASET``: ``perplexity:val.jsonl``, ``custom:metric.py:val.jsonl``, ``lm_eval:arc_easy``."""
    found = _NAMED.fullmatch(text)
    if found is None:
        raise click.BadParameter(f"{text!r} is no benchmark; write NAME or NAME:DATASET, as in perplexity:val.jsonl")
    kind, _, script = found["name"].partition(":")
    name = f"custom:{placed(script)}" if kind == "custom" and script else found["name"]
    return {"name": name, **({"dataset": placed(found["dataset"])} if found["dataset"] else {})}


def _is_checkpoint(text: str) -> bool:
    return text in CHECKPOINTS or text.startswith("ckpt-")


def placed(path: str) -> str:
    """A path of this directory as the server needs it; URIs, and names of the hub, as they are."""
    return str(Path(path).absolute()) if "://" not in path and Path(path).exists() else path


def parameter_of(text: str) -> tuple[str, Any]:
    """``KEY=VALUE``; the value is JSON where it can be read as such, else text."""
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise click.BadParameter(f"{text!r} is no parameter; write KEY=VALUE, as in max_new_tokens=32")
    if name == TASK_DIR:
        return name, placed(value)
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def requirement_of(text: str) -> dict[str, Any]:
    """``METRIC>=VALUE`` or ``METRIC<=VALUE``, as an entry of `require`."""
    found = _REQUIRED.fullmatch(text)
    if found is None:
        raise click.BadParameter(
            f"{text!r} is no requirement; write METRIC>=VALUE or METRIC<=VALUE, as in 'choices/accuracy>=0.6', in "
            "quotes: without them a shell takes what follows > or < for a file"
        )
    try:
        bound = float(found["bound"])
    except ValueError:
        bound = math.nan
    if not math.isfinite(bound):
        raise click.BadParameter(f"{text!r}: {found['bound'].strip()!r} is no finite number")
    return {"metric": found["metric"].strip(), _BOUNDS[found["sign"]]: bound}


def as_trained(job: Mapping[str, Any]) -> dict[str, Any]:
    """How the job's training read its records, as `data_config` of another model's evaluation."""
    data = job.get("data_config") or {}
    names = ("preprocess", "max_seq_length", "seed")
    return {"data_config": {name: data[name] for name in names if data.get(name) is not None}}


def base_of(job: Mapping[str, Any]) -> dict[str, Any]:
    """The model with which a training began, of the job's answer. Raises ClickException for one from scratch."""
    base = (job.get("training_config") or {}).get("base_model") or {}
    if not base.get("model_id") or base.get("from_config"):
        raise click.ClickException(f"{job['job_id']} began with random weights; name a model with --against")
    if base.get("credentials"):
        raise click.ClickException(
            f"the base model of {job['job_id']}, {base['model_id']}, was read with credentials of its own, which no "
            "other job gets: evaluate it with --file, whose model repeats them, and compare both with trainyard eval "
            "compare"
        )
    kept = {name: base[name] for name in OF_BASE_MODELS if base.get(name)}
    return {"model_uri": base["model_id"], **kept}
