"""Builds the model of a rollout as the training builds its own; the trained weights then come from there."""

from typing import Any

from peft import PeftModel, get_peft_model
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from workers.rank.run_context import RunSpec
from workers.trainers.hf_trainer.model import pretrained
from workers.trainers.hf_trainer.model.trainable_weights import chosen_weights
from workers.trainers.inference.engine.loading import device_of, dtype_of
from workers.trainers.rollouts.completer import Completer
from workers.trainers.rollouts.request_handler import RequestHandler


def load(spec: RunSpec) -> RequestHandler:
    """Raises ModelNotFound and InvalidConfig."""
    model, tokenizer = build(spec)
    return RequestHandler(model, Completer(model, tokenizer, spec))


def dtype_of_rollouts(spec: RunSpec) -> str:
    """What `weights.dtype_of_weights` says of a rollout on such a device."""
    return str(dtype_of(spec)).removeprefix("torch.") if spec.device_type == "cuda" else ""


def build(spec: RunSpec) -> tuple[PreTrainedModel | PeftModel, PreTrainedTokenizerBase]:
    """The model on this rank's device, in the dtype that the training computes in."""
    tokenizer = pretrained.load_tokenizer(spec)
    weights = chosen_weights(spec)
    base = weights.load_base(tokenizer)
    adapter = weights.adapter(base)
    model: PreTrainedModel | PeftModel = base
    if adapter is not None:
        made = get_peft_model(base, adapter)
        if not isinstance(made, PeftModel):
            raise TypeError(f"an adapter made a {type(made).__name__}")
        model = made
    if spec.device_type == "cuda":
        module: Any = model
        module.to(device=device_of(spec), dtype=dtype_of(spec))
    model.eval()
    return model, tokenizer
