"""Which weights are trained and exported: the full model, or a LoRA adapter on a frozen base model."""

from pathlib import Path
from typing import cast

from peft import LoraConfig, PeftModel
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from app.domain.spec.hyperparameters.parsing import USE_LORA
from workers.rank.run_context import RunSpec
from workers.rank.spec_sections import output_config
from workers.trainers.hf_trainer.model import pretrained
from workers.trainers.hf_trainer.model.export import export_adapter, export_merged, export_model
from workers.trainers.hf_trainer.model.lora_adapters import adapted, lora_config
from workers.trainers.hf_trainer.model.model_card import RunModelCard


class FullWeights:
    """Trains and exports all weights of the base model."""

    def __init__(self, spec: RunSpec) -> None:
        self.spec = spec
        self.resized = False  # whether embeddings were added for new tokens

    def load(self, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel | PeftModel:
        """The model to train. Raises ModelNotFound and InvalidConfig."""
        return self.load_base(tokenizer)

    def load_base(self, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
        """The base model, with an embedding for every token. Raises ModelNotFound and InvalidConfig."""
        model = self.read()
        self.resized = pretrained.resize(model, tokenizer, self.spec)
        return model

    def read(self) -> PreTrainedModel:
        """The base model as stored in its files. Raises ModelNotFound and InvalidConfig."""
        return pretrained.load_model(self.spec)

    def adapter(self, _base: PreTrainedModel) -> LoraConfig | None:
        """The adapter configuration for trainers that add the adapter themselves. Raises InvalidConfig."""
        return None

    def export(
        self,
        model: PreTrainedModel | PeftModel,
        tokenizer: PreTrainedTokenizerBase,
        card: RunModelCard,
        directory: Path,
    ) -> tuple[str, ...]:
        """Write the finished model and return its weight files in order. Raises ExportFailed."""
        return export_model(cast("PreTrainedModel", model), tokenizer, card, directory)


class AdapterWeights(FullWeights):
    """Exports the adapter alone, or the base model with the adapter merged."""

    def load(self, tokenizer: PreTrainedTokenizerBase) -> PeftModel:
        base = self.load_base(tokenizer)
        return adapted(base, self.spec, new_tokens=self.resized)

    def adapter(self, base: PreTrainedModel) -> LoraConfig:
        return lora_config(base, self.spec, new_tokens=self.resized)

    def to_merge(self, model: PeftModel, _tokenizer: PreTrainedTokenizerBase) -> PeftModel:
        """The adapter on the base weights that it is merged into."""
        return model

    def export(
        self,
        model: PreTrainedModel | PeftModel,
        tokenizer: PreTrainedTokenizerBase,
        card: RunModelCard,
        directory: Path,
    ) -> tuple[str, ...]:
        trained, output = cast("PeftModel", model), output_config(self.spec)
        if output.export_format == "merged" or output.merge_lora:
            return export_merged(self.to_merge(trained, tokenizer), tokenizer, card, directory)
        return export_adapter(trained, tokenizer, card, directory, resized=self.resized)


def chosen_weights(spec: RunSpec) -> FullWeights:
    """The weights to train for a method that supports both."""
    return AdapterWeights(spec) if spec.hyperparameters[USE_LORA] else FullWeights(spec)
