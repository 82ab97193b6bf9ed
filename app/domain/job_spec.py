"""What a user asked for, immutable: a job document that passed every rule, completed, its secrets taken out."""

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from app.domain.job_rules import check
from app.domain.locations import ReadingRules
from app.domain.routing import DEFAULT_PRIORITY

MASK = "***"
DEFAULT_MAX_RETRIES = 3
# Rather one too many: a masked value still reaches the job, a missed one is shown to everybody in the project.
_SECRET_NAME = re.compile(
    r"KEY|PASS|PWD|AUTH(?!OR(?!IZ))|TOKEN(?!IZER)|SECRET|CREDENTIAL|CREDS|PRIVATE|(?:^|_)PAT(?:_|$)|DATABASE_URL|DSN",
    re.IGNORECASE,
)
# scheme://user:password@host, and scheme://token@host.
_SECRET_VALUE = re.compile(r"://(?:[^/\s@]+|[^/\s:@]*:\S+)@")
_FORMAT_BY_SUFFIX = {
    ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".csv": "csv", ".parquet": "parquet", ".txt": "text",
    ".arrow": "arrow",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """``document`` is what is stored and shown; ``secrets`` maps dotted paths to what it shows as ``***``."""

    name: str
    labels: Mapping[str, str]
    document: Mapping[str, Any]
    secrets: Mapping[str, str]
    training_type: str
    framework: str
    queue: str
    priority: int
    max_retries: int
    max_runtime_seconds: int | None
    resume_from_checkpoint: str | None


def from_document(submitted: Mapping[str, Any], rules: ReadingRules) -> JobSpec:
    """The description in a document whose shape the schema has checked.

    Raises InvalidRequest, naming the field, for the first rule it breaks.
    """
    document = _complete(submitted)
    check(document, rules)
    secrets = _take_secrets(document)
    training, scheduling = document["training_config"], document["scheduling_config"]
    return JobSpec(
        name=document["name"],
        labels=MappingProxyType(dict(document["labels"])),
        document=MappingProxyType(document),
        secrets=MappingProxyType(secrets),
        training_type=training["training_type"],
        framework=training["framework"]["type"],
        queue=scheduling["queue"],
        priority=scheduling["priority"],
        max_retries=training["max_retries"],
        max_runtime_seconds=scheduling.get("max_runtime_seconds"),
        resume_from_checkpoint=training.get("resume_from_checkpoint") or None,
    )


def is_secret(name: str, value: str = "") -> bool:
    """Whether this environment variable is kept encrypted and never shown: by its name, or by what it holds."""
    return _SECRET_NAME.search(name) is not None or _SECRET_VALUE.search(value) is not None


def _complete(submitted: Mapping[str, Any]) -> dict[str, Any]:
    """Fill in the defaults that depend on other fields."""
    document = copy.deepcopy(dict(submitted))
    training, scheduling = document["training_config"], document["scheduling_config"]
    training.setdefault("max_retries", DEFAULT_MAX_RETRIES)
    training.setdefault("hyperparameters", {})
    training.setdefault("environment", {})
    # Priority has two places; the scheduler's own one wins, and it is the one that is read from here on.
    scheduling.setdefault("priority", training.get("priority", DEFAULT_PRIORITY))
    evaluation = training.get("evaluation")
    if evaluation and evaluation["strategy"] == "steps":
        evaluation.setdefault("steps", document["output_config"]["checkpoint"]["save_steps"])
    for source in document["data_config"]["sources"]:
        _complete_format(source)
    return document


def _complete_format(source: dict[str, Any]) -> None:
    suffix = "." + source["path"].rpartition(".")[2].lower()
    if "format" not in source and suffix in _FORMAT_BY_SUFFIX:
        source["format"] = _FORMAT_BY_SUFFIX[suffix]


def _take_secrets(document: dict[str, Any]) -> dict[str, str]:
    secrets = {}
    output, environment = document["output_config"], document["training_config"]["environment"]
    if output.get("hub_token"):
        secrets["output_config.hub_token"] = output["hub_token"]
        output["hub_token"] = MASK
    for name, value in environment.items():
        if is_secret(name, value):
            secrets[f"training_config.environment.{name}"] = value
            environment[name] = MASK
    return secrets
