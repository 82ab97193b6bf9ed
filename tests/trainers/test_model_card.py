"""What the card of a finished model tells, and what it keeps to itself."""

from pathlib import Path

import pytest
import yaml

from workers.rank.run_context import RunSpec
from workers.trainers.hf_trainer.model.model_card import RunModelCard


def card(locations=("data.jsonl",), metrics=(), name=None, **base_model):
    spec = RunSpec(
        run_dir=Path("/run"),
        framework="HF_TRAINER",
        training_type="LORA",
        hyperparameters={},
        model_path="/cache/model",
        data_paths=(),
        sources=tuple({"location": location, "files": []} for location in locations),
        training_config={"base_model": base_model, "hyperparameters": {"lora_r": "8"}},
        output_config={"output_model_name": name},
        data_config={"sources": [{"split": "train"}] * len(locations), "batch_size": 4, "seed": 7},
    )
    return RunModelCard(spec, dict(metrics), 12)


@pytest.mark.parametrize(
    ("location", "shown"),
    [
        ("/home/person/secret/train.jsonl", "train.jsonl"),
        ("file:///home/person/train.jsonl", "train.jsonl"),
        ("people/train.jsonl", "train.jsonl"),
        ("s3://bucket/data/train.jsonl", "s3://bucket/data/train.jsonl"),
        ("https://me:word@example.org/train.jsonl?token=abc#x", "https://example.org/train.jsonl"),
        ("hf://datasets/owner/name@main/train.jsonl", "hf://datasets/owner/name@main/train.jsonl"),
    ],
)
def test_source_is_named_without_secrets_and_private_paths(location, shown):
    text = card([location]).text()

    assert f"- {shown} (split train)\n" in text
    assert not {"person", "word", "token=abc"} & set(text.replace("/", " ").replace(":", " ").replace("@", " ").split())


def test_card_has_every_setting_and_measurement():
    text = card(metrics={"loss": 1.25, "eval_loss": float("nan")}, source="hub", model_id="owner/base").text()

    assert text.startswith("---\nlibrary_name: transformers\n")
    assert 'base_model: "owner/base"' in text
    assert "| lora_r | 8 |" in text
    assert "| batch_size | 4 |" in text
    assert "| loss | 1.25 |" in text
    assert "eval_loss" not in text
    assert "in 12 optimizer steps" in text
    assert "| torch | " in text


@pytest.mark.parametrize(
    ("name", "shown"),
    [("support-v3", "support-v3"), ('Übung "5" 🚂', 'Übung "5" 🚂'), ("a\n# b: c\x7f\x85|d\ud800", "a # b: c |d")],
)
def test_name_of_the_result_is_the_title_and_in_the_metadata(name, shown):
    text = card(name=name, source="hub", model_id="owner/base").text()

    _, front_matter, page = text.split("---\n", 2)
    assert yaml.safe_load(front_matter)["model_name"] == shown
    assert page.strip().splitlines()[0] == "# " + shown.replace("|", "\\|")
    assert "from `owner/base`, in 12 optimizer steps" in page


def test_result_without_a_name_is_titled_by_its_base():
    text = card(name="\n", source="hub", model_id="owner/base").text()

    assert "model_name" not in text
    assert "\n# Model trained from owner/base\n" in text


def test_local_base_model_is_named_by_its_last_part():
    text = card(source="local", model_id="/home/person/models/llama").text(adapter=True, resized=True)

    assert "/home/person" not in text
    assert 'AutoModelForCausalLM.from_pretrained("llama")\nbase.resize_token_embeddings(len(tokenizer))\n' in text


def test_text_that_would_break_the_page_stays_in_its_cell():
    text = card(metrics={"a|b\n# title": 1.0}).text()

    assert "\n# title" not in text
    assert "| a\\|b # title | 1 |" in text
