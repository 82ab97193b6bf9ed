"""Fine-tuning of a small adapter (LoRA) beside frozen weights in 4 bits (QLoRA)."""

from peft import PeftModel, get_peft_model_state_dict, set_peft_model_state_dict
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from workers.trainers.data.datasets import Splits
from workers.trainers.hf_trainer.loop.trl_trainer import TrlTrainer
from workers.trainers.hf_trainer.methods.sft import SupervisedTrainer
from workers.trainers.hf_trainer.model.quantized import load_quantized, train_in_float32
from workers.trainers.hf_trainer.model.trainable_weights import Adapter


class QuantizedAdapter(Adapter):
    """Merged it is into the base model in full precision."""

    def read(self) -> PreTrainedModel:
        return load_quantized(self.spec)

    def to_merge(self, model: PeftModel, tokenizer: PreTrainedTokenizerBase) -> PeftModel:
        """The adapter on the weights it was made for: merged into those of 4 bits it would be rounded, too."""
        found = Adapter(self.spec).load(tokenizer)
        set_peft_model_state_dict(found, get_peft_model_state_dict(model))
        return found


class QloraTrainer(SupervisedTrainer):
    """Exports the adapter, or the base model in full precision with the adapter merged into it."""

    def choose_weights(self) -> QuantizedAdapter:
        return QuantizedAdapter(self.context.spec)

    def build(self, splits: Splits, tokenizer: PreTrainedTokenizerBase) -> TrlTrainer:
        trainer = super().build(splits, tokenizer)
        train_in_float32(trainer.model)
        return trainer
