"""Fine-tuning of a small adapter (LoRA) beside frozen weights."""

from peft import PeftModel
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from workers.trainers.hf_trainer import pretrained
from workers.trainers.hf_trainer.adapters import adapted
from workers.trainers.hf_trainer.export import export_adapter, export_merged
from workers.trainers.hf_trainer.model_card import ModelCard
from workers.trainers.hf_trainer.supervised import SupervisedTrainer
from workers.trainers.hf_trainer.trl_trainer import TrlTrainer


class LoraTrainer(SupervisedTrainer):
    """Exports the adapter, or the base model with the adapter merged into it."""

    _resized = False

    def load_model(self, tokenizer: PreTrainedTokenizerBase) -> PeftModel:
        spec, base = self.context.spec, self.load_base()
        self._resized = pretrained.resize(base, tokenizer, spec)
        return adapted(base, spec, new_tokens=self._resized)

    def load_base(self) -> PreTrainedModel:
        """What stays as it is. Raises ModelNotFound and InvalidConfig."""
        return pretrained.load_model(self.context.spec)

    def to_merge(self, model: PeftModel, _tokenizer: PreTrainedTokenizerBase) -> PeftModel:
        """The adapter on the weights that it is merged into."""
        return model

    def export(self, trainer: TrlTrainer, tokenizer: PreTrainedTokenizerBase, card: ModelCard) -> tuple[str, ...]:
        model = trainer.accelerator.unwrap_model(trainer.model)
        if self._merges:
            return export_merged(self.to_merge(model, tokenizer), tokenizer, card, self.context.output_dir)
        return export_adapter(model, tokenizer, card, self.context.output_dir, resized=self._resized)

    @property
    def _merges(self) -> bool:
        output = self.context.spec.output_config
        return bool(output.get("export_format") == "merged" or output.get("merge_lora"))
