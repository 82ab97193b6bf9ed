"""Direct preference optimization: raises the likelihood of the preferred answer relative to the base model.

Rafailov et al., Direct Preference Optimization: Your Language Model is Secretly a Reward Model, 2023
(arXiv:2305.18290). Other losses are trl's.
"""

from typing import Any

from datasets import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from trl.trainer.dpo_config import DPOConfig
from trl.trainer.dpo_trainer import DPOTrainer

from workers.trainers.data.datasets import Splits
from workers.trainers.hf_trainer.loop.arguments import arguments
from workers.trainers.hf_trainer.loop.collator import preference_collator
from workers.trainers.hf_trainer.loop.parallelism import parallelism_of
from workers.trainers.hf_trainer.loop.training import Training
from workers.trainers.hf_trainer.loop.trl_trainer import TrlTrainer
from workers.trainers.hf_trainer.model.pretrained import disable_dropout
from workers.trainers.hf_trainer.model.trainable_weights import FullWeights, chosen_weights


class _Dpo(TrlTrainer, DPOTrainer):
    """trl's trainer for pairs that are already tokenized."""

    def _prepare_dataset(self, dataset: Dataset, *_: Any) -> Dataset:
        return dataset


class DpoTrainer(Training):
    """Trains all weights against a frozen reference copy, or an adapter, without which the model is its own
    reference.
    """

    def choose_weights(self) -> FullWeights:
        return chosen_weights(self.context.spec)

    def build(self, splits: Splits, tokenizer: PreTrainedTokenizerBase) -> TrlTrainer:
        spec = self.context.spec
        values = spec.hyperparameters
        config = DPOConfig(
            **arguments(self.context, self.plan, validates=splits.validation is not None),
            beta=values["beta"],
            loss_type=[values["loss_type"]],
            label_smoothing=values["label_smoothing"],
            # It would also disable the adapter's dropout, which has its own hyperparameter.
            disable_dropout=False,
            # Records are already truncated.
            max_length=None,
        )
        model = self._read(tokenizer)
        adapter = self.weights.adapter(model)
        return _Dpo(
            **self.common(splits, tokenizer),
            model=model,
            ref_model=self._reference(model, tokenizer) if adapter is None else None,
            # trl would treat an existing adapter as a part of the reference.
            peft_config=adapter,
            args=config,
            data_collator=preference_collator(spec, tokenizer),
        )

    def _read(self, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
        model = self.weights.load_base(tokenizer)
        if self.context.spec.hyperparameters["disable_dropout"]:
            disable_dropout(model)
        return model

    def _reference(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
        return parallelism_of(self.context.spec.framework).reference_copy(model, lambda: self._read(tokenizer))
