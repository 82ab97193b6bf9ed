"""The immutable job specification: a validated document with defaults filled in and secrets removed."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from app.domain.routing import DEFAULT_PRIORITY
from app.domain.spec.credentials import CREDENTIALS, OPTIONS
from app.domain.spec.defaults import completed
from app.domain.spec.document import is_custom
from app.domain.spec.hyperparameters.trainer_arguments import with_hyperparameters
from app.domain.spec.locations.paths import ReadingRules
from app.domain.spec.rules.job import check
from app.domain.spec.rules.output import DEFAULT_SAVE_STEPS
from app.domain.spec.secrets import take_secrets
from app.domain.spec.user_tokens import PREFIX, require_tokens

DEFAULT_MAX_RETRIES = 3


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """``document`` is the stored form; ``secrets`` maps dotted paths to the values masked as ``***`` in it."""

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


def from_document(
    submitted: Mapping[str, Any],
    rules: ReadingRules,
    forwarded: Mapping[str, str] = MappingProxyType({}),
    *,
    secret_variables: Collection[str] = (),
) -> JobSpec:
    """Build the specification from a document that passed the schema; ``forwarded`` are the user's tokens.

    ``secret_variables`` of its environment are encrypted, whatever their names.

    Raises InvalidRequest, naming the field, for the first rule it breaks.
    """
    document = _complete(submitted)
    check(document, rules)
    require_tokens(document, forwarded)
    secrets = take_secrets(document, secret_variables) | {PREFIX + name: token for name, token in forwarded.items()}
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


def _complete(submitted: Mapping[str, Any]) -> dict[str, Any]:
    """Fill in the defaults that depend on other fields."""
    document: dict[str, Any] = _copy_of(dict(submitted))
    training, scheduling = document["training_config"], document["scheduling_config"]
    training.setdefault("max_retries", DEFAULT_MAX_RETRIES)
    training.setdefault("hyperparameters", {})
    training.setdefault("environment", {})
    with_hyperparameters(training)
    # Priority can be given in two fields; scheduling_config's takes precedence and is the only one read from here on.
    scheduling.setdefault("priority", training.get("priority", DEFAULT_PRIORITY))
    evaluation = training.get("evaluation")
    if evaluation and evaluation["strategy"] == "steps":
        saving = document["output_config"]["checkpoint"]
        evaluation.setdefault("steps", saving.get("save_steps", DEFAULT_SAVE_STEPS))
    document["data_config"] = completed(document["data_config"], custom=is_custom(document))
    return document


def _copy_of(value: Any) -> Any:
    """Copy JSON data; faster than ``copy.deepcopy``, which also handles cycles."""
    if isinstance(value, dict):
        return {name: _copy_of(inner) for name, inner in value.items()}
    return [_copy_of(inner) for inner in value] if isinstance(value, list) else value


def comparable_data(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The ``data_config`` of a stored document with defaults filled in, however long ago it was stored.

    Without what opens the sources: renewed credentials make no other data.
    """
    data = completed(spec["data_config"], custom=is_custom(spec))
    access = (CREDENTIALS, OPTIONS)
    sources = [{name: value for name, value in each.items() if name not in access} for each in data["sources"]]
    return {**data, "sources": sources}
