"""Supervised fine-tuning (SFT): a language model learns to generate the tokens of the records."""

from transformers import PreTrainedTokenizerBase
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from workers.trainers.data.datasets import Splits
from workers.trainers.hf_trainer.loop.arguments import arguments
from workers.trainers.hf_trainer.loop.collator import collator, max_seq_length
from workers.trainers.hf_trainer.loop.training import Training
from workers.trainers.hf_trainer.loop.trl_trainer import TrlTrainer


class _Sft(TrlTrainer, SFTTrainer):
    """trl's trainer for records that are already tokenized."""


class SupervisedTrainer(Training):
    """Trains all weights."""

    measures_perplexity = False

    def build(self, splits: Splits, tokenizer: PreTrainedTokenizerBase) -> TrlTrainer:
        spec = self.context.spec
        packing = bool(spec.hyperparameters.get("packing"))
        config = SFTConfig(
            **arguments(self.context, self.plan, validates=splits.validation is not None),
            max_length=max_seq_length(spec) if packing else None,
            packing=packing,
            # The records' labels say which tokens are learned.
            assistant_only_loss=False,
            completion_only_loss=False,
            dataset_kwargs=None if packing else {"skip_prepare_dataset": True},
        )
        return _Sft(
            **self.common(splits, tokenizer),
            perplexity=self.measures_perplexity,
            model=self.weights.load(tokenizer),
            args=config,
            # trl's own collator lays out packed records without padding.
            data_collator=None if packing else collator(spec, tokenizer),
        )
