"""Every document of a service that people are shown, in examples/services and in docs/, is accepted."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from app.domain.serving.document import Replicas, ServedAdapters, ServiceLimits
from app.domain.serving.rules import check
from app.schemas.services import CreateServiceSchema
from tests.builders.example_jobs import ROOT, SOMEWHERE, filled_in

EXAMPLES = sorted((ROOT / "examples" / "services").glob("*.json"))
PAGE = (ROOT / "docs" / "how-to" / "services.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```json\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def accept(shown: dict[str, Any]) -> None:
    schema = CreateServiceSchema()
    assert schema.validate(shown) == {}
    check(schema.load(shown).document)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_is_accepted(path: Path) -> None:
    shown = filled_in(path, SOMEWHERE)

    accept(shown)

    assert shown["name"] == path.stem


@pytest.mark.parametrize("block", BLOCKS)
def test_document_of_the_page_is_accepted(block: str) -> None:
    accept(json.loads(block))


def test_every_example_is_in_the_list() -> None:
    listed = re.findall(r"\| `services/([\w-]+)\.json`", (ROOT / "examples" / "README.md").read_text(encoding="utf-8"))

    assert sorted(listed) == sorted(path.stem for path in EXAMPLES)


def test_the_page_names_every_field_with_its_default() -> None:
    replicas, adapters, limits = Replicas(), ServedAdapters(), ServiceLimits()
    rows = {
        "`replicas.min`, `max`": f"{replicas.min}, {replicas.max}",
        "`replicas.target_in_flight`": f"{replicas.target_in_flight}",
        "`replicas.idle_seconds`": f"{replicas.idle_seconds}",
        "`adapters.from`": f"`{adapters.source}`",
        "`adapters.max_loaded`, `max_rank`": f"{adapters.max_loaded}, {adapters.max_rank}",
        "`limits.max_output_tokens`": f"{limits.max_output_tokens}",
        "`limits.max_waiting`, `cold_start_seconds`": f"{limits.max_waiting}, {limits.cold_start_seconds}",
    }

    missing = [name for name, default in rows.items() if f"| {name} | {default} |" not in PAGE]

    assert missing == []
    assert {name for name in CreateServiceSchema().fields if f"`{name}" not in PAGE} == set()
