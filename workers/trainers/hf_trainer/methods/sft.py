"""Supervised fine-tuning (SFT): a language model learns the tokens of records, as it would write them itself."""

from transformers import PreTrainedTokenizerBase
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from workers.trainers.data.datasets import Splits
from workers.trainers.hf_trainer.loop.arguments import arguments
from workers.trainers.hf_trainer.loop.collator import collator, max_seq_length
from workers.trainers.hf_trainer.loop.training import Training
from workers.trainers.hf_trainer.loop.trl_trainer import TrlTrainer


class _Sft(TrlTrainer, SFTTrainer):
    """trl's trainer, of records that are tokenized already."""


class SupervisedTrainer(Training):
    """Of all weights."""

    measures_perplexity = False

    def build(self, splits: Splits, tokenizer: PreTrainedTokenizerBase) -> TrlTrainer:
        spec = self.context.spec
        packing = bool(spec.hyperparameters.get("packing"))
        config = SFTConfig(
            **arguments(self.context, self.plan, validates=splits.validation is not None),
            max_length=max_seq_length(spec) if packing else None,
            packing=packing,
            # Which tokens are learned is in the records' labels.
            assistant_only_loss=False,
            completion_only_loss=False,
            dataset_kwargs=None if packing else {"skip_prepare_dataset": True},
        )
        return _Sft(
            **self.common(splits, tokenizer),
            perplexity=self.measures_perplexity,
            model=self.weights.load(tokenizer),
            args=config,
            # Packed records are laid out without padding, by trl's own collator.
            data_collator=None if packing else collator(spec, tokenizer),
        )
