"""The part of the form to submit a job that has a row for each role; other fields of a role stand in the document."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from app.domain.spec.hyperparameters.parsing import CUSTOM
from app.domain.spec.roles import ROLLOUT, SCRIPT, TRAIN
from app.domain.spec.rules.roles import MOST_ROLES
from app.schemas.spec.tasks import RoleSchema
from app.web.job_form import FormField, field_at

_DEVICES: Mapping[str, Any] = {"resource_config": {"gpu_count": 1}}
_OF_TRAINING: Sequence[Mapping[str, Any]] = (
    {"role": "trainer", "program": TRAIN},
    {"role": "rollout", "program": ROLLOUT},
    {"role": "script", "program": SCRIPT, "sidecar": True},
)
_FIELDS = (
    *("role", "program", "count", "resource_config.gpu_count", "resource_config.gpu_type"),
    *("training_config.custom_script_path", "depends_on", "restart", "sidecar"),
)


@dataclass(frozen=True, kw_only=True)
class RoleRow:
    number: int
    fields: Sequence[FormField]


def new_role(framework: str, count: int) -> dict[str, Any]:
    """What the button adds to ``count`` roles; those of a built-in trainer are its training, its rollouts, and then
    scripts beside them.
    """
    if framework == CUSTOM:
        return {"role": "worker", **_DEVICES}
    return {**_OF_TRAINING[min(count, len(_OF_TRAINING) - 1)], **_DEVICES}


def rows(count: int) -> list[RoleRow]:
    """For the first roles of a document."""
    return [
        RoleRow(number=number, fields=[replace(field, path=f"tasks.{number}.{field.path}") for field in _fields()])
        for number in range(min(count, MOST_ROLES))
    ]


@cache
def _fields() -> tuple[FormField, ...]:
    return tuple(field_at(path, RoleSchema) for path in _FIELDS)
