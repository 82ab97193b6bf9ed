"""No field of the job document is ignored: something acts on it, or it is refused; and each is described."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from marshmallow import Schema, fields

from app.domain.not_supported import GAPS
from app.schemas.jobs import SubmitJobSchema

ROOT = Path(__file__).parents[2]
RULES = ("_rules.py", "not_supported.py", "data_defaults.py", "training_types.py", "job_changes.py")
# What acts on fields whose names are too common to be looked for, or that rules alone decide.
ACTORS = {
    "name": ("app/domain/job_spec.py", 'document["name"]'),
    "training_config.framework.config": ("trainyard/_run.py", 'spec.get("training_config")'),
    "training_config.framework.type": ("app/domain/job_spec.py", 'training["framework"]["type"]'),
    "training_config.framework.distributed.config": ("app/domain/script_options.py", "PROCESSES"),
    "training_config.framework.distributed.strategy": ("trainyard/_run.py", 'spec.get("training_config")'),
    # There is one for each kind of device; every other is refused.
    "training_config.framework.distributed.backend": ("app/domain/training_rules.py", 'distributed.get("backend")'),
    "training_config.framework.distributed.world_size": ("app/domain/training_rules.py", "world_size != count"),
    # They must say what the path says, which decides.
    "data_config.sources.type": ("app/domain/data_rules.py", 'source["type"] != kind'),
}


def leaves(schema: Schema, path: str = "") -> Iterator[tuple[str, fields.Field]]:  # type: ignore[type-arg]
    for name, field in schema.fields.items():
        inner = field.inner if isinstance(field, fields.List) else field
        below = f"{path}.{name}".lstrip(".")
        if isinstance(inner, fields.Nested):
            yield from leaves(inner.schema, below)
        else:
            yield below, field


FIELDS = dict(leaves(SubmitJobSchema()))


def code() -> str:
    """All that could act on a field: neither its schema nor its rules do, nor what stores a change of it."""
    files = (path for folder in ("app/services", "app/domain", "workers") for path in (ROOT / folder).rglob("*.py"))
    return "\n".join(path.read_text() for path in files if not path.name.endswith(RULES))


@pytest.fixture(scope="module")
def acting() -> str:
    return code()


@pytest.mark.parametrize("path", FIELDS)
def test_every_field_is_acted_on_or_refused(acting: str, path: str) -> None:
    refused = any(gap.path == path and not gap.read_by for gap in GAPS)
    if path in ACTORS:
        file, reads = ACTORS[path]
        acts = reads in (ROOT / file).read_text()
    else:
        acts = re.search(rf"""["']{path.rpartition(".")[2]}["']""", acting) is not None

    assert acts != refused


def test_every_field_is_described() -> None:
    assert [path for path, field in FIELDS.items() if not field.metadata.get("description")] == []


def test_every_gap_is_a_field() -> None:
    assert {gap.path for gap in GAPS} <= FIELDS.keys()
