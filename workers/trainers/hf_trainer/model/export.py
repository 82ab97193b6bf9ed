"""Exports the finished model as a directory that plain transformers or peft loads, and verifies it by reloading."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from peft import PeftModel, get_peft_model_state_dict
from safetensors import SafetensorError
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from trainyard._hooks.outputs import weight_files
from workers.rank.spec_sections import output_config
from workers.trainers.failures import ExportFailed, is_out_of_memory
from workers.trainers.hf_trainer.formats.convert import convert
from workers.trainers.hf_trainer.model import verify_export
from workers.trainers.hf_trainer.model.model_card import RunModelCard
from workers.trainers.hf_trainer.model.tokenizer import trust_options


def export_model(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, card: RunModelCard, directory: Path
) -> tuple[str, ...]:
    """Write safetensors, configuration, tokenizer and model card; returns the weight files in their fixed order.

    The written model is reloaded, compared with `model` bit by bit, and then converted to the requested export format.
    Raises ExportFailed.
    """
    with _failing_as_export():
        # Training disabled the cache; generation needs it.
        model.config.use_cache = True
        model.save_pretrained(directory)
        verify_export.check_model(model, directory, **trust_options(card.spec))
        convert(output_config(card.spec).export_format, directory, tokenizer)
        return _completed(tokenizer, card, directory)


def export_merged(
    model: PeftModel, tokenizer: PreTrainedTokenizerBase, card: RunModelCard, directory: Path
) -> tuple[str, ...]:
    """Export the base model with the adapter merged; this removes the adapter from `model`. Raises ExportFailed."""
    with _failing_as_export():
        merged = model.merge_and_unload(safe_merge=True)
        return export_model(merged, tokenizer, card, directory)


def export_adapter(
    model: PeftModel, tokenizer: PreTrainedTokenizerBase, card: RunModelCard, directory: Path, *, resized: bool
) -> tuple[str, ...]:
    """Export the adapter alone; using it needs the base model. Raises ExportFailed.

    With `resized`, embeddings were added for new tokens; they are saved with the adapter.
    """
    with _failing_as_export():
        expected = get_peft_model_state_dict(model, save_embedding_layers=False)
        config = model.peft_config[model.active_adapter]
        # Do not publish the local path of the base model.
        config.base_model_name_or_path = card.base_location
        model.save_pretrained(str(directory), save_embedding_layers=False)
        verify_export.check_adapter(expected, directory)
        return _completed(tokenizer, card, directory, adapter=True, resized=resized)


@contextmanager
def _failing_as_export() -> Iterator[None]:
    try:
        yield
    except (KeyError, OSError, RuntimeError, SafetensorError, TypeError, ValueError) as error:
        if is_out_of_memory(error):
            raise
        raise ExportFailed(f"could not export the model: {error}") from error


def _completed(
    tokenizer: PreTrainedTokenizerBase,
    card: RunModelCard,
    directory: Path,
    *,
    adapter: bool = False,
    resized: bool = False,
) -> tuple[str, ...]:
    tokenizer.save_pretrained(directory)
    verify_export.check_tokenizer(tokenizer, directory, **trust_options(card.spec))
    (directory / "README.md").write_text(card.text(adapter=adapter, resized=resized), encoding="utf-8")
    for path in directory.rglob("*"):
        # safetensors writes mode 0600, but other users read the result.
        path.chmod(0o755 if path.is_dir() else 0o644)
    return tuple(weight_files(directory))
