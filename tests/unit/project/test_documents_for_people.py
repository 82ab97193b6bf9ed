"""Every job document that people are shown, in examples/jobs and in docs/, is one that is accepted."""

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest

from app.domain.spec.data.preprocessing import mapped_columns
from app.domain.spec.job_spec import from_document
from app.domain.spec.locations.paths import ReadingRules
from app.schemas.jobs import SubmitJobSchema
from scripts.document_fields import SECTIONS
from tests.builders.example_jobs import DOCUMENTS, ROOT, SOMEWHERE, filled_in
from workers.trainers.data.shapes import RecordMapper

PAGES = {
    f"{folder}/{path.stem}": path.read_text(encoding="utf-8")
    for folder, names in {
        "tutorials": ("first-training",),
        "how-to": (
            "checkpoints-and-resume",
            "choose-a-method",
            "custom-scripts",
            "large-models",
            "reinforcement-learning",
            "troubleshoot-training",
        ),
        "reference": ("credentials", "data", "job-document", "output"),
    }.items()
    for path in (ROOT / "docs" / folder / f"{name}.md" for name in names)
}
PAGE = "\n".join(PAGES.values())
BLOCKS = re.findall(r"^```json\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
MAPS = '"field_mapping"'
RULES = ReadingRules(roots=("/srv",), image_sources=("registry.example",))
# What the page leaves out of a fragment.
REST: dict[str, Any] = {
    "name": "any",
    "training_config": {
        "training_type": "SFT",
        "base_model": {"model_id": "/srv/models/base"},
        "framework": {"type": "HF_TRAINER"},
    },
    "data_config": {"sources": [{"path": "/srv/data/train.jsonl"}]},
    "resource_config": {},
}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.stem)
def test_example_is_accepted(path: Path) -> None:
    spec = accepted(filled_in(path, SOMEWHERE))

    assert path.stem in (spec.document.labels["example"], spec.document.name)


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_document_of_the_page_is_accepted(block: str) -> None:
    shown = json.loads(block)

    spec = accepted(merged(REST, shown))

    assert shown.keys() <= {"name", *spec.document.given}


@pytest.mark.parametrize("path", sorted((ROOT / "examples" / "cluster").glob("*.json")), ids=lambda path: path.stem)
def test_job_of_the_cluster_to_try_is_accepted(path: Path) -> None:
    document = json.loads(path.read_text(encoding="utf-8"))
    named = [
        document["training_config"]["framework"]["custom_script_path"],
        document["data_config"]["sources"][0]["path"],
    ]

    spec = accepted(document)

    assert spec.document.name == path.stem
    assert all((ROOT / name).exists() for name in named)


def test_every_example_is_in_the_list() -> None:
    listed = re.findall(r"\| `jobs/([\w-]+)\.json` \|", (ROOT / "examples" / "README.md").read_text(encoding="utf-8"))

    assert sorted(listed) == sorted(path.stem for path in DOCUMENTS)


def test_records_of_the_page_are_read() -> None:
    lines = re.findall(r"^```jsonl\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    records = [json.loads(line) for block in lines for line in block.splitlines()]
    mappings = [json.loads(block)["data_config"]["preprocess"]["field_mapping"] for block in BLOCKS if MAPS in block]

    shapes = [shape_of(record, mappings) for record in records]

    preferences = {"prompt, chosen and rejected", "chosen and rejected"}
    assert set(shapes) == {"messages", "prompt and completion", "text", "prompt"} | preferences


def test_messages_of_the_page_are_ours() -> None:
    table = PAGES["how-to/troubleshoot-training"].partition("## Error messages")[2]
    messages = re.findall(r"`([^`]+)`", "".join(row.split("|")[1] for row in re.findall(r"^\|.*", table, re.MULTILINE)))
    code = "".join(path.read_text() for folder in ("app", "workers") for path in sorted((ROOT / folder).rglob("*.py")))
    said = re.sub(r'"\s*\n\s*f?"', "", code)  # a message that is written over several lines

    assert len(messages) > 10
    assert [message for message in messages if not re.search(wherever_values_stand(message), said)] == []


@pytest.mark.parametrize("section", SECTIONS)
def test_every_field_says_what_it_means(section: str) -> None:
    silent = [name for name, field in SECTIONS[section]().fields.items() if not field.metadata.get("description")]

    assert silent == []


def wherever_values_stand(message: str) -> str:
    """A pattern for the source of a message, in which values stand as ``{framework}``."""
    return re.escape(message).replace("HF_TRAINER", r"\{\w+\}")


def shape_of(record: dict[str, Any], mappings: list[dict[str, str]]) -> str:
    """As it is, or by the mapping of the page whose columns it has."""
    fitting = [mapping for mapping in mappings if set(mapped_columns(mapping).values()) <= record.keys()]
    alone = "prompt" in record and not {"completion", "chosen"} & record.keys()
    training_type = "DPO" if {"chosen", "preferred_output"} & record.keys() else "RLHF" if alone else "SFT"
    return RecordMapper(fitting[0] if fitting else {}, training_type).record(record, "line 1")[0]


def accepted(document: dict[str, Any]) -> Any:
    schema = SubmitJobSchema()
    assert schema.validate(document) == {}
    return from_document(schema.load(document), RULES)


def merged(base: Any, changes: Any) -> Any:
    if not isinstance(base, dict) or not isinstance(changes, dict):
        return copy.deepcopy(changes)
    names = {**base, **changes}
    return {name: merged(base.get(name), changes[name]) if name in changes else base[name] for name in names}
