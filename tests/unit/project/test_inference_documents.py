"""Every inference document and evaluation that people are shown, in examples/inference and in docs/, is accepted."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from app.domain.evaluations.documents import Subject, document
from app.domain.spec.inference import Inference, ModelReference
from app.domain.spec.job_spec import JobSpec, from_document
from app.domain.spec.locations.paths import NO_MODEL, ReadingRules
from app.domain.spec.model import BaseModel
from app.schemas.evaluations import CreateEvaluationSchema
from app.schemas.inference import SubmitInferenceSchema
from app.schemas.jobs import SubmitJobSchema
from app.services.inference.models import WantedModel
from tests.builders.example_jobs import ROOT, SOMEWHERE, filled_in

EXAMPLES = sorted((ROOT / "examples" / "inference").glob("*.json"))
PAGES = (
    *("how-to/run-inference.md", "how-to/evaluate-models.md"),
    *("reference/inference.md", "reference/evaluations.md", "reference/judge.md"),
)
BLOCKS = [
    pytest.param(block, id=f"{name}-{i}")
    for name in PAGES
    for i, block in enumerate(
        re.findall(r"^```json\n(.*?)^```", (ROOT / "docs" / name).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    )
]
RULES = ReadingRules(roots=("/srv",))
# What the pages leave out of a fragment.
REST: dict[str, Any] = {"name": "any", "model": {"job_id": "job-1"}, "data_config": {"sources": [{"path": "/srv/a"}]}}
TRAINING: dict[str, Any] = {
    "name": "any",
    "training_config": {
        "training_type": "SFT",
        "base_model": {"model_id": "/srv/models/base"},
        "framework": {"type": "HF_TRAINER"},
    },
    "data_config": {"sources": [{"path": "/srv/data/train.jsonl"}]},
    "resource_config": {},
}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_is_accepted(path: Path) -> None:
    spec = accepted(filled_in(path, SOMEWHERE))

    assert spec.document.labels["example"] == path.stem


@pytest.mark.parametrize("block", BLOCKS)
def test_document_of_a_page_is_accepted(block: str) -> None:
    shown = json.loads(block)

    spec = accepted(shown)

    assert (spec.document.kind == "training") is ("training_config" in shown)


def test_every_example_is_in_the_list() -> None:
    listed = re.findall(r"\| `inference/([\w-]+)\.json`", (ROOT / "examples" / "README.md").read_text(encoding="utf-8"))

    assert sorted(listed) == sorted(path.stem for path in EXAMPLES)


def accepted(shown: dict[str, Any]) -> JobSpec:
    if "training_config" in shown:
        planned = {"training_config": {**TRAINING["training_config"], **shown["training_config"]}}
        return from_document(loaded(SubmitJobSchema(), {**TRAINING, **planned}), RULES)
    return evaluation(shown) if "benchmarks" in shown else inference({**REST, **shown})


def loaded(schema: Any, shown: dict[str, Any]) -> Any:
    assert schema.validate(shown) == {}
    return schema.load(shown)


def inference(shown: dict[str, Any]) -> JobSpec:
    new = loaded(SubmitInferenceSchema(), shown)
    base, model = resolved(new.model)
    section = (new.document.inference or Inference()).changed(model=model)
    training = new.document.training_config.changed(base_model=base)
    return from_document(new.document.changed(training_config=training, inference=section), RULES)


def evaluation(shown: dict[str, Any]) -> JobSpec:
    request = loaded(CreateEvaluationSchema(), {"model": {"job_id": "job-1"}, **shown})
    base, model = resolved(request.model)
    return from_document(document(Subject(base=base, model=model), request.benchmarks, request.options), RULES)


def resolved(wanted: WantedModel) -> tuple[BaseModel, ModelReference]:
    if wanted.job_id is None:
        return wanted.base, ModelReference().changed(quantization=wanted.quantization)
    return BaseModel().changed(model_id=NO_MODEL), ModelReference().changed(job_id=wanted.job_id)
