"""docs/reference/compatibility.md: what becomes of each field of each system's job, from the tables that decide it."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from marshmallow import Schema

from app.compat.cyxwiz import messages_pb2 as pb
from app.compat.cyxwiz.fields import FIELDS as CYXWIZ
from app.compat.cyxwiz.shapes import body_of
from app.compat.modelarts.fields import FIELDS as MODELARTS
from app.compat.modelarts.requests import CreateSchema
from app.compat.ome.fields import FIELDS as OME
from app.compat.ome.fields import MODEL_FIELDS, RUNTIME_FIELDS
from app.compat.ome.manifests import BaseModelSchema, RuntimeSchema, TrainingJobSchema
from app.compat.runai.documents.requests import DistributedSchema, TrainingSchema
from app.compat.runai.fields import FIELDS as RUNAI
from app.schemas.jobs import SubmitJobSchema
from app.schemas.spec.field_verdicts import FieldVerdict, Table, field_paths
from app.schemas.spec.job_fields import FIELDS as NATIVE
from scripts.document_fields import cell


@dataclass(frozen=True)
class Vocabulary:
    """``requests``: the bodies that make a job; what becomes of their fields is in ``table``."""

    title: str
    requests: tuple[type[Schema], ...]
    table: Table

    def paths(self) -> Iterator[str]:
        """Of every field of its requests, once, in their order."""
        return iter(dict.fromkeys(path for request in self.requests for path in field_paths(request())))


VOCABULARIES: tuple[Vocabulary, ...] = (
    Vocabulary("Trainyard's own API (ScaiMind's jobs)", (SubmitJobSchema,), NATIVE),
    Vocabulary("CyxWiz", (body_of(pb.JobConfig),), CYXWIZ),
    Vocabulary("Huawei ModelArts", (CreateSchema,), MODELARTS),
    Vocabulary("NVIDIA Run:ai", (TrainingSchema, DistributedSchema), RUNAI),
    Vocabulary("OME", (TrainingJobSchema,), OME),
    Vocabulary("OME's runtimes", (RuntimeSchema,), RUNTIME_FIELDS),
    Vocabulary("OME's base models", (BaseModelSchema,), MODEL_FIELDS),
)


def counts() -> str:
    """How many fields of each system have which verdict."""
    lines = ["| system | fields | " + " | ".join(FieldVerdict) + " |", "|---|" + "--:|" * (len(FieldVerdict) + 1)]
    for vocabulary in VOCABULARIES:
        found = Counter(rule.verdict for rule in vocabulary.table.values())
        numbers = [len(vocabulary.table), *(found[verdict] for verdict in FieldVerdict)]
        lines.append(f"| {vocabulary.title} | " + " | ".join(map(str, numbers)) + " |")
    return "\n".join(lines)


def sections() -> str:
    """A section for each system: every field, its verdict and the note."""
    return "\n\n".join(_section(vocabulary) for vocabulary in VOCABULARIES)


def _section(vocabulary: Vocabulary) -> str:
    rules = ((path, vocabulary.table[path]) for path in vocabulary.paths())
    rows = [f"| `{path}` | {rule.verdict} | {cell(rule.note)} |" for path, rule in rules]
    return "\n".join([f"## {vocabulary.title}", "", "| field | verdict | note |", "|---|---|---|", *rows])
