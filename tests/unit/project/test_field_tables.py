"""Every field of every request for a job has an entry in the table of its vocabulary, and no entry is superfluous."""

from collections.abc import Iterator

import pytest
from marshmallow import Schema, fields

from app.schemas.jobs import SubmitJobSchema
from app.schemas.spec.field_verdicts import acted_on, warned
from scripts import field_tables
from scripts.field_tables import VOCABULARIES, Vocabulary

each_vocabulary = pytest.mark.parametrize("vocabulary", VOCABULARIES, ids=lambda vocabulary: vocabulary.title)


@each_vocabulary
def test_every_field_has_an_entry(vocabulary: Vocabulary) -> None:
    assert sorted(set(vocabulary.paths()) - vocabulary.table.keys()) == []


@each_vocabulary
def test_every_entry_is_a_field(vocabulary: Vocabulary) -> None:
    assert sorted(vocabulary.table.keys() - set(vocabulary.paths())) == []


@each_vocabulary
def test_every_entry_says_something(vocabulary: Vocabulary) -> None:
    assert [path for path, rule in vocabulary.table.items() if not rule.note] == []


def test_page_has_a_section_with_all_fields_in_the_order_of_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    class First(Schema):
        name = fields.String()
        size = fields.Integer()

    class Second(First):
        color = fields.String()

    table = {"color": warned("all is grey"), "name": acted_on("a|b"), "size": warned("all is small")}
    monkeypatch.setattr(field_tables, "VOCABULARIES", (Vocabulary("Toys", (First, Second), table),))

    assert field_tables.sections().splitlines() == [
        "## Toys",
        "",
        "| field | verdict | note |",
        "|---|---|---|",
        r"| `name` | acted on | a\|b |",
        "| `size` | ignored, with a warning | all is small |",
        "| `color` | ignored, with a warning | all is grey |",
    ]
    assert field_tables.counts().splitlines()[2] == "| Toys | 3 | 1 | 0 | 2 |"


def test_every_field_of_a_job_document_is_described() -> None:
    undescribed = [path for path, field in _leaves(SubmitJobSchema()) if not field.metadata.get("description")]

    assert undescribed == []


def _leaves(schema: Schema, path: str = "") -> Iterator[tuple[str, fields.Field]]:  # type: ignore[type-arg]
    for name, field in schema.fields.items():
        inner = field.inner if isinstance(field, fields.List) else field
        below = f"{path}.{name}".lstrip(".")
        if isinstance(inner, fields.Nested):
            yield from _leaves(inner.schema, below)
        else:
            yield below, field
