"""Collates tokenized records into batches, padded as the job requests."""

from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase
from trl.trainer.dpo_trainer import DataCollatorForPreference
from trl.trainer.reward_trainer import DataCollatorForPreference as DataCollatorForJudging
from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

from workers.rank.run_context import RunSpec
from workers.rank.spec_sections import data_config


def max_seq_length(spec: RunSpec) -> int:
    """Maximum tokens of a record without truncation."""
    return data_config(spec).max_seq_length


def collator(spec: RunSpec, tokenizer: PreTrainedTokenizerBase) -> "PaddingCollator":
    """Pads to the longest record of a batch, or to max_seq_length, on the tokenizer's padding side."""
    return PaddingCollator(**_padding(spec, tokenizer))


def preference_collator(spec: RunSpec, tokenizer: PreTrainedTokenizerBase) -> "PreferencePadding":
    """As `collator` for preference pairs: the longer answers of a batch determine the length."""
    return PreferencePadding(**_padding(spec, tokenizer))


def reward_collator(spec: RunSpec, tokenizer: PreTrainedTokenizerBase) -> "RewardPadding":
    """As `collator` for reward models, which have no labels."""
    return RewardPadding(**_padding(spec, tokenizer))


def _padding(spec: RunSpec, tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    preprocess = data_config(spec).preprocess
    return {
        "pad_token_id": tokenizer.pad_token_id,
        # No record is longer, so the next multiple is that length itself.
        "pad_to_multiple_of": max_seq_length(spec) if preprocess.padding == "max_length" else None,
        "left": tokenizer.padding_side == "left",
    }


@dataclass
class PaddingCollator(DataCollatorForLanguageModeling):
    """trl's collator, which pads only on the right, with support for left padding."""

    left: bool = False

    def torch_call(self, examples: list[dict[str, Any]]) -> dict[str, Any]:
        """input_ids, labels and attention_mask of shape (records, longest); position_ids where padding shifts them."""
        if not self.left:
            return dict(super().torch_call(examples))
        mirrored = [{name: example[name][::-1] for name in ("input_ids", "labels")} for example in examples]
        batch = {name: values.flip(1) for name, values in super().torch_call(mirrored).items()}
        batch["position_ids"] = _positions(batch["attention_mask"])
        return batch


@dataclass
class PreferencePadding(DataCollatorForPreference):
    """As `PaddingCollator` for trl's preference collator."""

    left: bool = False

    def torch_call(self, examples: list[dict[str, Any]]) -> dict[str, Any]:
        """input_ids, attention_mask, completion_mask of shape (2 × records, longest), the chosen answers first."""
        batch = dict(super().torch_call(examples))
        return _left_padded(batch) if self.left else batch


@dataclass
class RewardPadding(DataCollatorForJudging):
    """As `PaddingCollator` for trl's reward collator, which takes prompts and answers together."""

    left: bool = False

    def torch_call(self, examples: list[dict[str, Any]]) -> dict[str, Any]:
        """input_ids and attention_mask of shape (2 × records, longest), the chosen answers first."""
        whole = [
            {name: each["prompt_ids"] + each[name] for name in ("chosen_ids", "rejected_ids")} for each in examples
        ]
        batch = dict(super().torch_call(whole))
        return _left_padded(batch) if self.left else batch


def _left_padded(batch: dict[str, Any]) -> dict[str, Any]:
    """Move right padding to the left."""
    shifts = (batch["attention_mask"] == 0).sum(1).tolist()
    moved = {
        name: torch.stack([row.roll(shift) for row, shift in zip(values, shifts, strict=True)])
        for name, values in batch.items()
    }
    return {**moved, "position_ids": _positions(moved["attention_mask"])}


def _positions(attention_mask: torch.Tensor) -> torch.Tensor:
    return (attention_mask.cumsum(1) - 1).clamp(min=0)
