"""What an inspection finds out about real small models and data."""

import json
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch

from app.domain.spec.hyperparameters import parsing
from workers.rank.run_context import RunSpec
from workers.trainers import inspection
from workers.trainers.data.encoded import Encoded
from workers.trainers.failures import DataInvalid
from workers.trainers.hf_trainer.loop.collator import collator
from workers.trainers.hf_trainer.model.tokenizer import load_tokenizer
from workers.trainers.inspection_data import collate

Findings = dict[str, Any]
Inspect = Callable[..., Findings]


@pytest.fixture
def model(assets: Path, tmp_path: Path) -> Path:
    """A copy that a test may spoil."""
    return Path(shutil.copytree(assets / "model", tmp_path / "model"))


@pytest.fixture
def inspect(assets: Path, tmp_path: Path) -> Inspect:
    def make(
        *paths: Path, model: Path | None = assets / "model", kind: str = "SFT", rows: int = 1000, **changes: Any
    ) -> Findings:
        framework = changes.pop("framework", {"type": "HF_TRAINER"})
        values = parsing.parse(framework["type"], kind, changes.pop("hyperparameters", {}))
        base, grader = changes.pop("base_model", {}), changes.pop("grader", {})
        devices = changes.pop("devices", 1)
        tokenizer, output = changes.pop("tokenizer", ""), changes.pop("output_config", {})
        sources = changes.pop("sources", None) or [{"path": str(path)} for path in paths]
        return inspection.inspect(
            {
                "run_dir": str(tmp_path),
                "framework": framework["type"],
                "training_type": kind,
                "hyperparameters": values,
                "model_path": str(model or ""),
                "tokenizer_path": str(tokenizer),
                "data_paths": [str(path) for path in paths],
                "training_config": {"base_model": base, "framework": framework, "grader": grader},
                "output_config": output,
                "data_config": {"sources": sources, "max_seq_length": 64, **changes},
                "world_size": devices,
                "rows": rows,
                "has_weights": True,
            }
        )

    return make


def lines(path: Path, records: Iterable[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def only_error(findings: Findings) -> tuple[str, str]:
    (error,) = findings["errors"]
    return error["error_type"], error["message"]


def test_each_source_is_measured_and_the_first_batch_collates(inspect, assets):
    found = inspect(
        assets / "train.jsonl",
        assets / "validation.jsonl",
        sources=[{"path": "a"}, {"path": "b", "split": "validation"}],
        batch_size=4,
    )

    train, validation = found["sources"]
    assert (found["errors"], found["left_out"]) == ([], [])
    assert (train["columns"], train["records_read"], train["complete"]) == (["completion", "prompt"], 60, True)
    assert (validation["split"], validation["records_read"]) == ("validation", 12)
    assert train["lengths"]["0.5"] <= train["lengths"]["0.99"] <= train["lengths"]["max"]
    assert found["lengths"]["max"] == max(each["lengths"]["max"] for each in (train, validation))
    assert (found["batch"]["shape"][0], found["model"]["model_type"]) == (4, "llama")
    assert 0 < found["batch"]["learned_share"] < 1
    assert [each["tokens"] > 0 and not each["cut"] for each in train["first_records"]] == [True] * 3


def _defined(inspect, assets, model=None, **definition):
    base = {"model_id": "none", "from_config": definition or True}
    return inspect(assets / "train.jsonl", model=model, tokenizer=assets / "model", base_model=base)


def test_defined_model_needs_no_directory_and_no_weights(inspect, assets):
    small = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2}

    found = _defined(inspect, assets, **small, hiden_layers=3)

    assert found["errors"] == found["left_out"] == []
    assert found["warnings"] == ["from_config.hiden_layers is unknown to a model of type llama and has no effect"]
    assert found["model"]["vocab_size"] == found["model"]["tokenizer_size"]


def test_model_without_weights_is_as_it_should_be_where_they_are_drawn(inspect, assets, model):
    (model / "model.safetensors").unlink()

    assert only_error(inspect(assets / "train.jsonl", model=model))[0] == "MODEL_NOT_FOUND"
    assert _defined(inspect, assets, model)["errors"] == []


@pytest.mark.parametrize(
    ("definition", "why"),
    [
        ({"model_type": "perceptron"}, "no causal language model of type 'perceptron'"),
        ({"model_type": "llama", "hidden_size": "wide"}, "no configuration that transformers can read"),
        ({"model_type": "gpt2", "n_embd": 63, "n_head": 8}, "no model can be made of this gpt2"),
    ],
)
def test_what_defines_no_model_is_an_error(inspect, assets, definition, why):
    kind, message = only_error(_defined(inspect, assets, **definition))

    assert kind == "INVALID_CONFIG"
    assert why in message


@pytest.mark.parametrize("form", ["gguf", "onnx"])
def test_form_that_the_model_can_not_be_written_in_is_an_error(inspect, assets, model, form):
    config = json.loads((model / "config.json").read_text())

    fitting = inspect(assets / "train.jsonl", model=model, output_config={"export_format": form})
    (model / "config.json").write_text(json.dumps({**config, "model_type": "opt"}))
    other = inspect(assets / "train.jsonl", model=model, output_config={"export_format": form})

    assert fitting["errors"] == []
    assert only_error(other)[0] == "INVALID_CONFIG"
    assert f"export_format {form} supports models of type llama" in only_error(other)[1]


def test_only_so_many_records_are_read(inspect, assets):
    (source,) = inspect(assets / "train.jsonl", rows=10)["sources"]

    assert (source["records_read"], source["complete"]) == (10, False)


def test_without_a_model_the_data_alone_is_looked_at(inspect, assets):
    found = inspect(assets / "chat.jsonl", model=None)

    assert found["errors"] == []
    assert found["sources"][0]["records_read"] == 60
    assert "lengths" not in found


def test_cut_records_are_warned_of(inspect, assets):
    found = inspect(assets / "train.jsonl", max_seq_length=16)

    assert found["truncated_share"] > 0.5
    assert any("longer than max_seq_length 16" in warning for warning in found["warnings"])


def test_records_without_anything_to_learn_are_warned_of_and_all_of_them_are_an_error(inspect, tmp_path):
    long, short = {"prompt": "word " * 60, "completion": "yes"}, {"prompt": "a", "completion": "b"}

    some = inspect(lines(tmp_path / "some.jsonl", [long, short, short]), max_seq_length=32)
    kind, message = only_error(inspect(lines(tmp_path / "all.jsonl", [long] * 3), max_seq_length=32))

    assert any("1 of the first 3 records" in warning for warning in some["warnings"])
    assert kind == "DATA_INVALID"
    assert "all.jsonl has a token to learn" in message


def test_too_little_data_is_warned_of(inspect, assets):
    found = inspect(assets / "train.jsonl", batch_size=64, validation_split=0.05)

    assert any("57 records to train on, fewer than the 64" in warning for warning in found["warnings"])
    assert any("leaves 3 to measure on" in warning for warning in found["warnings"])


def test_blocks_are_counted_for_pretraining(inspect, tmp_path):
    text = lines(tmp_path / "text.jsonl", [{"text": "def one(self): return 1"}] * 20)

    found = inspect(text, kind="CONTINUED_PRETRAIN", batch_size=8)

    assert any("blocks of 64 tokens to train on, fewer than the 8" in warning for warning in found["warnings"])


def test_preferences_are_measured_and_both_answers_are_in_the_batch(inspect, assets):
    found = inspect(assets / "preferences.jsonl", kind="DPO", batch_size=4, rows=20)

    assert (found["errors"], found["warnings"]) == ([], [])
    assert found["sources"][0]["columns"] == ["chosen", "prompt", "rejected"]
    assert found["batch"]["shape"][0] == 8
    assert 0 < found["batch"]["learned_share"] < 1


def test_pairs_of_the_same_answer_are_warned_of(inspect, tmp_path):
    pair = {"prompt": "a", "chosen": "b", "rejected": "c"}

    found = inspect(lines(tmp_path / "pairs.jsonl", [pair, {**pair, "rejected": "b"}]), kind="DPO")

    assert any("1 of the first 2 records" in warning and "same tokens" in warning for warning in found["warnings"])


SHORT = {"max_completion_length": "16"}


def test_prompts_are_measured_without_anything_to_learn_in_them(inspect, assets):
    found = inspect(assets / "train.jsonl", kind="RLHF", hyperparameters={"reward": "exact:completion", **SHORT})

    assert (found["errors"], found["warnings"]) == ([], [])
    assert found["batch"]["learned_share"] == 0
    assert found["lengths"]["max"] <= 64 - 16


def test_reward_by_a_missing_column_is_refused_before_a_device_is_taken(inspect, assets):
    kind, message = only_error(
        inspect(assets / "train.jsonl", kind="RLHF", hyperparameters={"reward": "exact", **SHORT})
    )

    assert kind == "INVALID_CONFIG"
    assert "the records have no column answer; they have completion" in message


def test_grader_of_a_missing_column_is_refused_as_early(inspect, assets):
    grader = {"type": "string_check", "input": "{{item.answer}}", "reference": "4", "operation": "eq"}
    found = inspect(assets / "train.jsonl", kind="RLHF", grader=grader, hyperparameters=SHORT)

    assert only_error(found) == ("INVALID_CONFIG", "grader: the records have no column answer; they have completion")


def test_examples_are_no_preferences(inspect, assets):
    kind, message = only_error(inspect(assets / "train.jsonl", kind="DPO"))

    assert kind == "DATA_INVALID"
    assert "train.jsonl line 1 has no column chosen, rejected" in message


def test_a_template_that_marks_nothing_is_warned_of(inspect, assets):
    plain = "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + eos_token }}{% endfor %}"

    found = inspect(assets / "chat.jsonl", preprocess={"chat_template": plain})

    assert found["errors"] == []
    assert any("does not mark the assistant's turns" in warning for warning in found["warnings"])
    assert not any("assistant's turns" in warning for warning in inspect(assets / "chat.jsonl")["warnings"])


def test_records_that_teach_no_end_are_warned_of(inspect, assets):
    endless = (
        "{% for m in messages %}{% if m['role'] == 'assistant' %}{% generation %}{{ m['content'] }}{% endgeneration %}"
        "{% else %}{{ m['content'] }}{% endif %}{% endfor %}"
    )

    found = inspect(assets / "chat.jsonl", preprocess={"chat_template": endless}, max_seq_length=256)

    assert any("will not learn to stop" in warning for warning in found["warnings"])


def test_tokens_that_do_not_agree_with_the_model_are_warned_of(inspect, assets, model):
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "eos_token_id": 7}))

    found = inspect(assets / "train.jsonl", model=model, preprocess={"tokenizer_config": {"pad_token": "<new>"}})

    assert any("the model's config says id 7" in warning for warning in found["warnings"])
    assert any("it gets new embeddings" in warning for warning in found["warnings"])


def test_sequences_beyond_the_models_positions_are_warned_of(inspect, assets, tmp_path):
    long = lines(tmp_path / "long.jsonl", [{"prompt": "a", "completion": "b " * 900}])

    found = inspect(long, max_seq_length=1024)

    assert any("the model supports 512 positions" in warning for warning in found["warnings"])
    assert not any("positions" in warning for warning in inspect(long, max_seq_length=512)["warnings"])
    assert not any("positions" in warning for warning in inspect(assets / "train.jsonl")["warnings"])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"prompt": "a", "completion": "b"}\n{"prompt": "a"', "data.jsonl line 2"),
        ('{"prompt": "a", "completion": "b"}\n{"question": "a"}\n', "data.jsonl line 2"),
        ('{"prompt": "a", "completion": 5}\n', "completion"),
        ("", "data.jsonl is empty"),
        ("\n\n", "no records"),
    ],
)
def test_what_is_wrong_with_data_is_named(inspect, tmp_path, content, said):
    path = tmp_path / "data.jsonl"
    path.write_text(content)

    kind, message = only_error(inspect(path))

    assert kind == "DATA_INVALID"
    assert said in message


def spoil_config(model: Path, **changes: Any) -> None:
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, **changes}))


def spoil_weights(model: Path, content: Callable[[bytes], bytes]) -> None:
    path = model / "model.safetensors"
    path.write_bytes(content(path.read_bytes()))


@pytest.mark.parametrize(
    ("spoil", "kind", "said"),
    [
        (lambda model: spoil_config(model, model_type="t5"), "INVALID_CONFIG", "no causal language model"),
        (lambda model: spoil_config(model, model_type="newest"), "MODEL_NOT_FOUND", "config.json"),
        (
            lambda model: spoil_config(model, model_type="own", auto_map={"AutoConfig": "own.Config"}),
            "INVALID_CONFIG",
            "trust_remote_code",
        ),
        (lambda model: (model / "config.json").write_text("{"), "MODEL_NOT_FOUND", "not JSON"),
        (lambda model: (model / "tokenizer.json").write_text("{"), "MODEL_NOT_FOUND", "tokenizer"),
        (lambda model: (model / "model.safetensors").unlink(), "MODEL_NOT_FOUND", "no weights"),
        (lambda model: spoil_weights(model, lambda data: data[:-1]), "MODEL_NOT_FOUND", "copy it again"),
        (lambda model: spoil_weights(model, lambda _: b"version https://git-lfs"), "MODEL_NOT_FOUND", "Git LFS"),
        (lambda model: spoil_weights(model, lambda data: data[:4]), "MODEL_NOT_FOUND", "truncated"),
        (lambda model: spoil_weights(model, lambda data: data[:8] + b"?" + data[9:]), "MODEL_NOT_FOUND", "damaged"),
        (
            lambda model: (model / "model.safetensors.index.json").write_text('{"weight_map": {"a": "part-2"}}'),
            "MODEL_NOT_FOUND",
            "lacks part-2",
        ),
    ],
)
def test_what_is_wrong_with_a_model_is_named(inspect, assets, model, spoil, kind, said):
    spoil(model)

    found_kind, message = only_error(inspect(assets / "train.jsonl", model=model))

    assert (found_kind, said in message) == (kind, True), message


def test_a_model_that_megatron_cannot_divide_so_is_found_before_it_is_trained(inspect, assets, model):
    spoil_config(model, num_hidden_layers=3)
    framework = {"type": "MEGATRON", "config": {"pipeline_parallel": "2"}}

    kind, message = only_error(inspect(assets / "train.jsonl", model=model, framework=framework, devices=2))

    assert kind == "INVALID_CONFIG"
    assert "pipeline_parallel is 2, but must divide the model's num_hidden_layers, which is 3" in message


def test_code_that_comes_with_a_model_runs_only_when_asked_for(inspect, assets, model):
    (model / "own.py").write_text(
        "from transformers import LlamaConfig\nclass Config(LlamaConfig):\n    model_type = 'own'\n"
    )
    spoil_config(model, model_type="own", auto_map={"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"})

    refused = only_error(inspect(assets / "train.jsonl", model=model))
    allowed = inspect(assets / "train.jsonl", model=model, base_model={"trust_remote_code": True})

    assert refused[0] == "INVALID_CONFIG"
    assert allowed["errors"] == []
    assert allowed["model"]["model_type"] == "own"


def test_what_says_nothing_about_the_job_is_left_out():
    findings: Findings = {"errors": [], "left_out": []}
    misread = DataInvalid("data.parquet is damaged")
    misread.__cause__ = MemoryError("malloc failed")

    for error in (MemoryError(), misread, RuntimeError("a library's own fault")):
        inspection._add_failure(findings, error)

    assert findings["errors"] == []
    assert "MemoryError" in findings["left_out"][0]
    assert "damaged" in findings["left_out"][1]
    assert "a library's own fault" in findings["left_out"][2]


@pytest.mark.parametrize("side", ["right", "left"])
def test_batches_are_those_of_the_trainers_collator(assets, tmp_path, side):
    spec = RunSpec(
        run_dir=tmp_path,
        framework="HF_TRAINER",
        training_type="SFT",
        hyperparameters={},
        data_paths=(),
        model_path=str(assets / "model"),
        data_config={"preprocess": {"tokenizer_config": {"padding_side": side}}},
    )
    tokenizer = load_tokenizer(spec)
    records = [Encoded([5, 6, 7], [-100, 6, 7], 3), Encoded([8], [8], 1), Encoded([9, 10], [-100, 10], 2)]

    ours = collate(records, tokenizer.pad_token_id, left=side == "left")
    theirs = collator(spec, tokenizer).torch_call(
        [{"input_ids": record.input_ids, "labels": record.labels} for record in records]
    )

    assert all(torch.equal(ours[name], theirs[name]) for name in ("input_ids", "labels", "attention_mask"))
