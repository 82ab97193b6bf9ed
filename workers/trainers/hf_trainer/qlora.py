"""Fine-tuning of a small adapter (LoRA) beside frozen weights in 4 bits (QLoRA)."""

from peft import PeftModel, get_peft_model_state_dict, set_peft_model_state_dict
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from workers.trainers.data.datasets import Splits
from workers.trainers.hf_trainer import pretrained
from workers.trainers.hf_trainer.adapters import adapted
from workers.trainers.hf_trainer.lora import LoraTrainer
from workers.trainers.hf_trainer.quantized import load_quantized, train_in_float32
from workers.trainers.hf_trainer.trl_trainer import TrlTrainer


class QloraTrainer(LoraTrainer):
    """Exports the adapter, or the base model in full precision with the adapter merged into it."""

    def load_base(self) -> PreTrainedModel:
        return load_quantized(self.context.spec)

    def to_merge(self, model: PeftModel, tokenizer: PreTrainedTokenizerBase) -> PeftModel:
        """The adapter on the weights it was made for: merged into those of 4 bits it would be rounded, too."""
        spec = self.context.spec
        base = pretrained.load_model(spec)
        found = adapted(base, spec, new_tokens=pretrained.resize(base, tokenizer, spec))
        set_peft_model_state_dict(found, get_peft_model_state_dict(model))
        return found

    def _build(self, splits: Splits, tokenizer: PreTrainedTokenizerBase) -> TrlTrainer:
        trainer = super()._build(splits, tokenizer)
        train_in_float32(trainer.model)
        return trainer
