"""Fine-tuning of a LoRA adapter on frozen weights.

Hu et al., LoRA: Low-Rank Adaptation of Large Language Models, 2021 (arXiv:2106.09685).
"""

from workers.trainers.hf_trainer.methods.sft import SupervisedTrainer
from workers.trainers.hf_trainer.model.trainable_weights import AdapterWeights


class LoraTrainer(SupervisedTrainer):
    """Exports the adapter, or the base model with the adapter merged."""

    def choose_weights(self) -> AdapterWeights:
        return AdapterWeights(self.context.spec)
