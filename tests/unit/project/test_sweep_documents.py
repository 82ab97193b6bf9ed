"""Every sweep document that people are shown, in examples/sweeps and in docs/, is one that is accepted."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from app.cli.client.sweeps.wandb import METHODS
from app.domain.spec.job_spec import from_document
from app.domain.spec.locations.paths import ReadingRules
from app.domain.sweeps.documents import trial_document
from app.domain.sweeps.events import SweepEventType
from app.domain.sweeps.parameters import Value
from app.domain.sweeps.rules import document as rules
from app.domain.sweeps.spec import EARLY_STOPPING, SweepSpec
from app.domain.sweeps.spec import METHODS as OURS
from app.domain.sweeps.states import SweepState, TrialState
from app.schemas.jobs import SubmitJobSchema
from app.schemas.tuning.sweeps import CreateSweepSchema
from tests.builders.example_jobs import ROOT, SOMEWHERE, filled_in

EXAMPLES = sorted((ROOT / "examples" / "sweeps").glob("*.json"))
PAGES = {
    name: (ROOT / "docs" / name).read_text(encoding="utf-8")
    for name in (
        *("reference/sweeps.md", "reference/sweep-requests.md"),
        *("how-to/sweeps.md", "tutorials/tune-a-model.md"),
    )
}
BLOCKS = [
    pytest.param(block, id=f"{name}-{i}")
    for name, page in PAGES.items()
    for i, block in enumerate(re.findall(r"^```json\n(.*?)^```", page, re.DOTALL | re.MULTILINE))
]
RULES = ReadingRules(roots=("/srv",), image_sources=("registry.example",))
# What the pages leave out of a fragment.
REST: dict[str, Any] = {
    "name": "any",
    "job": {
        "training_config": {
            "training_type": "LORA",
            "base_model": {"model_id": "/srv/models/base"},
            "framework": {"type": "HF_TRAINER"},
            "hyperparameters": {"max_steps": "900"},
        },
        "data_config": {"sources": [{"path": "/srv/data/train.jsonl"}], "validation_split": 0.05},
        "resource_config": {},
    },
    "parameters": {"learning_rate": {"type": "double", "min": 1e-5, "max": 1e-3}},
    "objective": {"metric": "eval_loss"},
    "budget": {"max_trials": 40},
}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_is_accepted(path: Path) -> None:
    spec = accepted(filled_in(path, SOMEWHERE))

    assert spec.labels["example"] == path.stem


@pytest.mark.parametrize("block", BLOCKS)
def test_document_of_a_page_is_accepted(block: str) -> None:
    shown = json.loads(block)

    spec = accepted({**REST, **shown, "job": merged(REST["job"], shown.get("job", {}))})

    assert set(spec.parameters) == set({**REST, **shown}["parameters"])


def test_the_tutorial_shows_the_example() -> None:
    example = json.loads((ROOT / "examples/sweeps/lora.json").read_text(encoding="utf-8"))
    shown: dict[str, Any] = {}
    for block in re.findall(r"^```json\n(.*?)^```", PAGES["tutorials/tune-a-model.md"], re.DOTALL | re.MULTILINE):
        shown |= json.loads(block)

    assert shown == {name: example[name] for name in shown}


def test_every_example_is_in_the_list() -> None:
    listed = re.findall(r"`sweeps/([\w-]+)\.json`", (ROOT / "examples" / "README.md").read_text(encoding="utf-8"))

    assert sorted(listed) == [path.stem for path in EXAMPLES]


@pytest.mark.parametrize("names", [OURS, EARLY_STOPPING[1:], SweepState, TrialState, SweepEventType])
def test_the_reference_explains_every_word(names: Any) -> None:
    pages = PAGES["reference/sweeps.md"] + PAGES["reference/sweep-requests.md"]
    tables = re.sub(r"<!-- generated: .*?<!-- end -->", "", pages, flags=re.DOTALL)

    assert [name for name in names if f"`{name}`" not in tables] == []


def test_the_page_names_the_methods_of_weights_and_biases() -> None:
    assert [name for name in METHODS if f"`{name}`" not in PAGES["how-to/sweeps.md"]] == []


def accepted(document: dict[str, Any]) -> SweepSpec:
    """The sweep, of which trials at both ends of the space are accepted as jobs."""
    schema = CreateSweepSchema()
    assert schema.validate(document) == {}
    spec: SweepSpec = schema.load(document)
    for values in rules.check(spec).examples():
        assert_is_job(spec, values)
    return spec


def assert_is_job(spec: SweepSpec, values: dict[str, Value]) -> None:
    job = trial_document(spec.job, values, name="trial", labels={})
    schema = SubmitJobSchema()
    assert schema.validate(job) == {}
    from_document(schema.load(job), RULES)


def merged(base: Any, changes: Any) -> Any:
    if not isinstance(base, dict) or not isinstance(changes, dict):
        return changes
    return {**base, **{name: merged(base.get(name), value) for name, value in changes.items()}}
