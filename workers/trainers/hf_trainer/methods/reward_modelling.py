"""Reward models: the preferred answer gets the higher score, by which RLHF can score completions.

The loss is Bradley and Terry's, as in Ouyang et al., Training language models to follow instructions with human
feedback, 2022 (arXiv:2203.02155).
"""

from typing import Any

from datasets import Dataset
from transformers import PreTrainedTokenizerBase
from trl.trainer.reward_config import RewardConfig
from trl.trainer.reward_trainer import RewardTrainer

from workers.trainers.data.datasets import Splits
from workers.trainers.hf_trainer.loop.arguments import arguments
from workers.trainers.hf_trainer.loop.collator import reward_collator
from workers.trainers.hf_trainer.loop.training import Training
from workers.trainers.hf_trainer.loop.trl_trainer import TrlTrainer
from workers.trainers.hf_trainer.model.pretrained import disable_dropout
from workers.trainers.hf_trainer.model.trainable_weights import FullWeights, chosen_weights


class _Reward(TrlTrainer, RewardTrainer):
    """trl's trainer for pairs that are already tokenized, separately from their prompts."""

    def _prepare_dataset(self, dataset: Dataset, *_: Any) -> Dataset:
        return dataset

    def _set_signature_columns_if_needed(self) -> None:
        trl: Any = self
        trl._signature_columns = ["prompt_ids", "chosen_ids", "rejected_ids"]  # noqa: SLF001  (as trl's own does)


class RewardModelTrainer(Training):
    """Trains all weights of the base model and its score head, or the score head and an adapter."""

    def choose_weights(self) -> FullWeights:
        return chosen_weights(self.context.spec)

    def build(self, splits: Splits, tokenizer: PreTrainedTokenizerBase) -> TrlTrainer:
        spec = self.context.spec
        values = spec.hyperparameters
        args = RewardConfig(
            **arguments(self.context, self.plan, validates=splits.validation is not None),
            center_rewards_coefficient=values["center_rewards_coefficient"] or None,
            disable_dropout=False,
            # Records are already truncated.
            max_length=None,
        )
        model = self.weights.load_base(tokenizer)
        if values["disable_dropout"]:
            disable_dropout(model)
        return _Reward(
            **self.common(splits, tokenizer),
            model=model,
            peft_config=self.weights.adapter(model),
            args=args,
            data_collator=reward_collator(spec, tokenizer),
        )
