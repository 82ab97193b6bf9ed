"""Supervised fine-tuning of a model's norms alone: a few thousand numbers, and everything else stays as it is.

Zhao et al., Tuning LayerNorm in Attention: Towards Efficient Multi-Modal LLM Finetuning, 2023 (arXiv:2312.11420).
"""

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from workers.trainers.failures import InvalidConfig
from workers.trainers.hf_trainer.methods.sft import SupervisedTrainer
from workers.trainers.hf_trainer.model.trainable_weights import FullWeights


class Norms(FullWeights):
    """The rest of the weights is frozen, and exported with them."""

    def load(self, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
        model = self.load_base(tokenizer)
        if self.resized:
            raise InvalidConfig("NORM_TUNING learns no embeddings: leave new tokens out, or choose SFT")
        model.requires_grad_(False)
        for module in model.modules():
            if type(module).__name__.endswith("Norm"):
                module.requires_grad_(True)
        return model


class NormTrainer(SupervisedTrainer):
    """Exports the whole model."""

    def choose_weights(self) -> Norms:
        return Norms(self.context.spec)
