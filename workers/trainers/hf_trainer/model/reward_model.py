"""The reward model that scores completions in RLHF: one number per text."""

from pathlib import Path
from typing import cast

from safetensors import SafetensorError
from transformers import AutoModelForSequenceClassification, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from workers.rank.run_context import RunSpec
from workers.trainers.data import templates
from workers.trainers.failures import InvalidConfig, ModelNotFound, is_out_of_memory
from workers.trainers.hf_trainer.model.pretrained import precision


def load_reward_model(spec: RunSpec) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The reward model and its own tokenizer. Raises ModelNotFound and InvalidConfig."""
    name = Path(spec.reward_model_path).name
    try:
        model, loading = AutoModelForSequenceClassification.from_pretrained(
            spec.reward_model_path, dtype=precision(spec).weights, output_loading_info=True
        )
        tokenizer = cast("PreTrainedTokenizerBase", AutoTokenizer.from_pretrained(spec.reward_model_path))
    except (ImportError, KeyError, OSError, RuntimeError, SafetensorError, TypeError, ValueError) as error:
        if is_out_of_memory(error):
            raise
        raise ModelNotFound(f"the reward model in {name} can't be loaded: {error}") from error
    if loading["missing_keys"]:
        raise InvalidConfig(
            f"reward_model_id: the model in {name} has no head that gives scores ({min(loading['missing_keys'])} is "
            "missing); name one that was trained as a reward model"
        )
    if model.config.num_labels != 1:
        raise InvalidConfig(
            f"reward_model_id: the model in {name} gives {model.config.num_labels} numbers for a text; name one that "
            "gives one"
        )
    templates.ensure(tokenizer)
    return model, tokenizer
