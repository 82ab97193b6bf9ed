"""The part of the form to submit a job that has a row for each role; other fields of a role stand in the document."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from app.domain.spec.rules.roles import MOST_ROLES
from app.schemas.spec.tasks import RoleSchema
from app.web.job_form import FormField, field_at

NEW_ROLE: Mapping[str, Any] = {"role": "worker", "resource_config": {"gpu_count": 1}}
_FIELDS = (
    *("role", "program", "count", "resource_config.gpu_count", "resource_config.gpu_type"),
    *("training_config.custom_script_path", "depends_on", "restart", "sidecar"),
)


@dataclass(frozen=True, kw_only=True)
class Row:
    number: int
    fields: Sequence[FormField]


def rows(count: int) -> list[Row]:
    """For the first roles of a document."""
    return [
        Row(number=number, fields=[replace(field, path=f"tasks.{number}.{field.path}") for field in _fields()])
        for number in range(min(count, MOST_ROLES))
    ]


@cache
def _fields() -> tuple[FormField, ...]:
    return tuple(field_at(path, RoleSchema) for path in _FIELDS)
