"""How records become batches: padding on either side and to a fixed length, batches of one length, packed ones."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM
from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

from workers.rank.run_context import RunSpec
from workers.trainers.hf_trainer.loop.batch_order import LengthGrouped
from workers.trainers.hf_trainer.loop.collator import collator

RECORDS = [{"input_ids": [5, 6, 7], "labels": [-100, 6, 7]}, {"input_ids": [8], "labels": [8]}]


def batch(side: str, **preprocess: Any) -> dict[str, Any]:
    spec = RunSpec(
        run_dir=Path("/run"),
        framework="HF_TRAINER",
        training_type="SFT",
        hyperparameters={},
        model_path="",
        data_paths=(),
        data_config={"max_seq_length": 5, "preprocess": preprocess},
    )
    tokenizer: Any = SimpleNamespace(pad_token_id=0, padding_side=side)
    found = collator(spec, tokenizer)(RECORDS)
    return {name: values.tolist() for name, values in found.items()}


def test_padding_on_the_right_to_the_longest():
    assert batch("right") == {
        "input_ids": [[5, 6, 7], [8, 0, 0]],
        "labels": [[-100, 6, 7], [8, -100, -100]],
        "attention_mask": [[1, 1, 1], [1, 0, 0]],
    }


def test_padding_on_the_left_keeps_positions():
    assert batch("left") == {
        "input_ids": [[5, 6, 7], [0, 0, 8]],
        "labels": [[-100, 6, 7], [-100, -100, 8]],
        "attention_mask": [[1, 1, 1], [0, 0, 1]],
        "position_ids": [[0, 1, 2], [0, 0, 0]],
    }


def test_padding_to_the_greatest_length():
    assert batch("right", padding="max_length")["input_ids"] == [[5, 6, 7, 0, 0], [8, 0, 0, 0, 0]]
    assert batch("left", padding="max_length")["input_ids"] == [[0, 0, 5, 6, 7], [0, 0, 0, 0, 8]]


def test_batches_of_one_length_have_an_order_of_their_epoch_alone():
    lengths = [1 + number * 7 % 50 for number in range(40)]
    whole = Dataset.from_dict({"input_ids": [[0] * length for length in reversed(lengths)]})
    dataset = whole.select(range(39, -1, -1))
    epoch = 0
    sampler = LengthGrouped(dataset, 5, 42, lambda: epoch)

    first = list(sampler)
    torch.rand(3)
    again = list(sampler)
    epoch = 1
    other = list(sampler)

    assert first == again
    assert first != other
    assert sorted(first) == sorted(other) == list(range(40))
    spread = [max(part) - min(part) for part in _batches([lengths[index] for index in first[5:]])]
    assert sum(spread) / len(spread) < 25


def _batches(values):
    return [values[start : start + 5] for start in range(0, len(values), 5)]


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_packed_records_do_not_see_each_other(assets, attention):
    model = AutoModelForCausalLM.from_pretrained(assets / "model", attn_implementation=attention).eval()
    records = [list(range(5, 17)), list(range(40, 49))]
    tokens = [token for record in records for token in record]
    packed = {"input_ids": tokens, "labels": tokens, "seq_lengths": [12, 9]}
    batch = DataCollatorForLanguageModeling(pad_token_id=0, padding_free=True)([packed])
    batch.pop("labels")

    with torch.no_grad():
        together = model(**batch, use_cache=False).logits[0].split([12, 9])
        alone = [model(torch.tensor([record])).logits[0] for record in records]

    for left, right in zip(together, alone, strict=True):
        torch.testing.assert_close(left, right, atol=1e-5, rtol=0)
