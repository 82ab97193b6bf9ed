"""What of a model is trained and exported: all its weights, or a small adapter (LoRA) beside them."""

from pathlib import Path
from typing import Any

from peft import LoraConfig, PeftModel
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from app.domain.spec.hyperparameters.parsing import USE_LORA
from workers.rank.run_context import RunSpec
from workers.trainers.hf_trainer.model import pretrained
from workers.trainers.hf_trainer.model.adapters import adapted, lora_config
from workers.trainers.hf_trainer.model.export import export_adapter, export_merged, export_model
from workers.trainers.hf_trainer.model.model_card import ModelCard


class AllWeights:
    """Those of the base model, which comes out whole."""

    def __init__(self, spec: RunSpec) -> None:
        self.spec = spec
        self.resized = False  # whether tokens without an embedding got one

    def load(self, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel | PeftModel:
        """What is trained. Raises ModelNotFound and InvalidConfig."""
        return self.load_base(tokenizer)

    def load_base(self, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
        """The base model, with an embedding for every token. Raises ModelNotFound and InvalidConfig."""
        model = self.read()
        self.resized = pretrained.resize(model, tokenizer, self.spec)
        return model

    def read(self) -> PreTrainedModel:
        """The base model as its files have it. Raises ModelNotFound and InvalidConfig."""
        return pretrained.load_model(self.spec)

    def adapter(self, _base: PreTrainedModel) -> LoraConfig | None:
        """The adapter that is to be made on the base model, for those who make it themselves. Raises InvalidConfig."""
        return None

    def export(
        self, model: Any, tokenizer: PreTrainedTokenizerBase, card: ModelCard, directory: Path
    ) -> tuple[str, ...]:
        """Write the finished model; its weight files in their order. Raises ExportFailed."""
        return export_model(model, tokenizer, card, directory)


class Adapter(AllWeights):
    """Exported alone, or as the base model with the adapter merged into it."""

    def load(self, tokenizer: PreTrainedTokenizerBase) -> PeftModel:
        base = self.load_base(tokenizer)
        return adapted(base, self.spec, new_tokens=self.resized)

    def adapter(self, base: PreTrainedModel) -> LoraConfig:
        return lora_config(base, self.spec, new_tokens=self.resized)

    def to_merge(self, model: PeftModel, _tokenizer: PreTrainedTokenizerBase) -> PeftModel:
        """The adapter on the weights that it is merged into."""
        return model

    def export(
        self, model: Any, tokenizer: PreTrainedTokenizerBase, card: ModelCard, directory: Path
    ) -> tuple[str, ...]:
        output = self.spec.output_config
        if output.get("export_format") == "merged" or output.get("merge_lora"):
            return export_merged(self.to_merge(model, tokenizer), tokenizer, card, directory)
        return export_adapter(model, tokenizer, card, directory, resized=self.resized)


def chosen_weights(spec: RunSpec) -> AllWeights:
    """Of a method that trains either."""
    return Adapter(spec) if spec.hyperparameters[USE_LORA] else AllWeights(spec)
