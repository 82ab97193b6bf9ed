"""Model cards as Markdown: read by the Hub's own reader, with hostile names that stay text."""

import dataclasses
import re
from datetime import UTC, datetime
from typing import Any

import pytest
from huggingface_hub import ModelCard as HubCard

from app.domain.model_cards.escaping import code, one_line, plain
from app.domain.model_cards.facts import BaseOfModel, CardFile, CardSource, Compute, MeasuredMetric, ModelCard
from app.domain.model_cards.markdown import as_markdown
from app.domain.spec.locations.published import published

MEASURED = MeasuredMetric(
    evaluation_id="job-2", benchmark="f1", dataset="q.jsonl", metric="f1", value=0.4, stderr=0.1, samples=4, passed=True
)
CARD = ModelCard(
    job_id="job-1",
    project="default",
    name="support: v2",
    kind="adapter",
    training_type="LORA",
    framework="HF_TRAINER",
    judges=False,
    base=BaseOfModel(location="Qwen/Qwen3-0.6B", is_of_hub=True, revision="abc"),
    settings={"seed": 1, "learning_rate": "1e-4"},
    sources=[CardSource(location="train.jsonl", split="train", sha256="5" * 64, records=12)],
    steps=10,
    tokens=100,
    final_metrics={"loss": 0.123456789, "odd": "NaN"},
    evaluations=[MEASURED, dataclasses.replace(MEASURED, metric="em", value="NaN")],
    passed=True,
    model_hash="6" * 64,
    files=[CardFile(path="adapter_model.safetensors", size_bytes=4, sha256="7" * 64, is_weights=True)],
    compute=Compute(device_types=["h200"], devices=2, nodes=1, attempts=3, seconds=60.0, device_seconds=120.0),
    created_at=datetime(2026, 1, 1, tzinfo=UTC),
    finished_at=None,
)
HOSTILE = (
    "x\n---\nlicense: mit\n# <script>alert(1)</script> [a](javascript:b) | `c` ![d](http://e) \u202ef www.g.example"
)


def changed(**values: Any) -> str:
    return as_markdown(dataclasses.replace(CARD, **values))


def test_hub_reads_the_head() -> None:
    found: Any = HubCard(as_markdown(CARD)).data

    assert (found.base_model, found.library_name, found.pipeline_tag) == ("Qwen/Qwen3-0.6B", "peft", "text-generation")
    assert (found.model_name, found.tags, found.license) == ("support: v2", ["trainyard", "lora"], None)
    (result,) = found.eval_results  # a value that is no number is left out
    assert (result.metric_type, result.metric_value, result.dataset_name) == ("f1", 0.4, "q.jsonl")


def test_text_has_hashes_counts_and_how_to_load_it() -> None:
    text = as_markdown(CARD)

    for part in ("`abc`", "5" * 64, "6" * 64, "7" * 64, "| 12 |", "2 × h200 on 1 nodes", "AutoPeftModelForCausalLM"):
        assert part in text
    assert "trainyard download job-1\ntrainyard serve job-1" in text
    assert "It meets everything" in text


def test_hostile_texts_stay_texts() -> None:
    text = changed(
        name=HOSTILE,
        base=BaseOfModel(location=HOSTILE, is_of_hub=True, revision=HOSTILE),
        settings={HOSTILE: HOSTILE},
        sources=[CardSource(location=HOSTILE, split=HOSTILE)],
        final_metrics={HOSTILE: HOSTILE},
        evaluations=[dataclasses.replace(MEASURED, benchmark=HOSTILE, dataset=HOSTILE, metric=HOSTILE)],
        files=[CardFile(path=HOSTILE, size_bytes=1, sha256="", is_weights=True)],
    )

    found: Any = HubCard(text)
    assert found.data.license is None
    assert found.data.model_name == one_line(HOSTILE)
    assert found.data.eval_results[0].metric_type == one_line(HOSTILE)
    assert "\u202e" not in text
    outside_code = "".join(text.split("---\n", 2)[2].split("``")[::2])
    for markup in ("<script", "](", "![", "http:", "www.", "| `c"):
        assert markup not in re.sub(r"\\.", "", outside_code)


@pytest.mark.parametrize("judges", [False, True])
def test_reward_models_are_classifiers_and_are_not_served(judges: bool) -> None:  # noqa: FBT001
    text = changed(judges=judges, kind="model")

    assert ("AutoModelForSequenceClassification" in text, "trainyard serve" in text) == (judges, not judges)


def test_card_without_anything_measured_has_no_empty_sections() -> None:
    text = changed(evaluations=[], sources=[], settings={}, final_metrics={}, files=[], passed=None, kind="files")

    for title in ("Evaluations", "Data", "Settings", "Final metrics", "Files", "model-index", "library_name"):
        assert title not in text


@pytest.mark.parametrize(
    ("location", "shown"),
    [
        ("https://user:secret@host/data.jsonl?sig=secret#x", "https://host/data.jsonl"),
        ("s3://bucket/a/b", "s3://bucket/a/b"),
        ("/srv/teams/private/train.jsonl", "train.jsonl"),
        ("file:///srv/teams/train.jsonl", "train.jsonl"),
        ("http://[", ""),
    ],
)
def test_location_is_published_without_what_is_private(location: str, shown: str) -> None:
    assert published(location) == shown


def test_escapes() -> None:
    assert plain("1. a_b | c") == "1\\. a\\_b \\| c"
    assert plain("- x") == "\\- x"
    assert (code("a`b|c"), code("")) == ("`` a`b\\|c ``", "")
