"""Fine-tuning of a LoRA adapter on frozen 4-bit weights (QLoRA)."""

from peft import PeftModel, get_peft_model_state_dict, set_peft_model_state_dict
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from workers.trainers.data.datasets import Splits
from workers.trainers.hf_trainer.loop.trl_trainer import TrlTrainer
from workers.trainers.hf_trainer.methods.sft import SupervisedTrainer
from workers.trainers.hf_trainer.model.quantized import load_quantized, train_in_float32
from workers.trainers.hf_trainer.model.trainable_weights import AdapterWeights


class QuantizedAdapter(AdapterWeights):
    """Merges into the base model in full precision."""

    def read(self) -> PreTrainedModel:
        return load_quantized(self.spec)

    def to_merge(self, model: PeftModel, tokenizer: PreTrainedTokenizerBase) -> PeftModel:
        """The adapter on the full-precision weights; merging into 4-bit weights would round it too."""
        found = AdapterWeights(self.spec).load(tokenizer)
        set_peft_model_state_dict(found, get_peft_model_state_dict(model))
        return found


class QloraTrainer(SupervisedTrainer):
    """Exports the adapter, or the base model in full precision with the adapter merged."""

    def choose_weights(self) -> QuantizedAdapter:
        return QuantizedAdapter(self.context.spec)

    def build(self, splits: Splits, tokenizer: PreTrainedTokenizerBase) -> TrlTrainer:
        trainer = super().build(splits, tokenizer)
        train_in_float32(trainer.model)
        return trainer
