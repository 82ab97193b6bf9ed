"""The finished model as a directory that plain transformers, or peft, loads; read again before it counts."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from peft import PeftModel, get_peft_model_state_dict
from safetensors import SafetensorError
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from trainyard._outputs import weight_files
from workers.trainers.failures import ExportFailed, lacked_memory
from workers.trainers.hf_trainer.formats.converting import convert
from workers.trainers.hf_trainer.model import verify_export
from workers.trainers.hf_trainer.model.model_card import ModelCard
from workers.trainers.hf_trainer.model.tokenizer import trust


def export_model(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, card: ModelCard, directory: Path
) -> tuple[str, ...]:
    """Write safetensors, configuration, tokenizer and model card; the weight files in their fixed order.

    What was written is loaded again and compared with `model` bit by bit, and then brought into the form that the job
    asks for. Raises ExportFailed.
    """
    with _failing_as_export():
        # It was made for training: what generates from it wants its cache.
        model.config.use_cache = True
        model.save_pretrained(directory)
        verify_export.check_model(model, directory, **trust(card.spec))
        convert(card.spec.output_config.get("export_format"), directory, tokenizer)
        return _completed(tokenizer, card, directory)


def export_merged(
    model: PeftModel, tokenizer: PreTrainedTokenizerBase, card: ModelCard, directory: Path
) -> tuple[str, ...]:
    """The same for the base model with the adapter merged into it, which `model` loses by it."""
    with _failing_as_export():
        merged = model.merge_and_unload(safe_merge=True)
        return export_model(merged, tokenizer, card, directory)


def export_adapter(
    model: PeftModel, tokenizer: PreTrainedTokenizerBase, card: ModelCard, directory: Path, *, resized: bool
) -> tuple[str, ...]:
    """The same for the adapter alone, which needs its base model to be used.

    With `resized`, embeddings were made larger for new tokens; as a part of the adapter they are in it.
    """
    with _failing_as_export():
        expected = get_peft_model_state_dict(model, save_embedding_layers=False)
        config = model.peft_config[model.active_adapter]
        # Where the base model lay on this machine is nobody's business.
        config.base_model_name_or_path = card.base_location
        model.save_pretrained(str(directory), save_embedding_layers=False)
        verify_export.check_adapter(expected, directory)
        return _completed(tokenizer, card, directory, adapter=True, resized=resized)


@contextmanager
def _failing_as_export() -> Iterator[None]:
    try:
        yield
    except (KeyError, OSError, RuntimeError, SafetensorError, TypeError, ValueError) as error:
        if lacked_memory(error):
            raise
        raise ExportFailed(f"could not export the model: {error}") from error


def _completed(
    tokenizer: PreTrainedTokenizerBase,
    card: ModelCard,
    directory: Path,
    *,
    adapter: bool = False,
    resized: bool = False,
) -> tuple[str, ...]:
    tokenizer.save_pretrained(directory)
    verify_export.check_tokenizer(tokenizer, directory, **trust(card.spec))
    (directory / "README.md").write_text(card.text(adapter=adapter, resized=resized), encoding="utf-8")
    for path in directory.rglob("*"):
        # safetensors writes 0600, and others than this process's user read the result.
        path.chmod(0o755 if path.is_dir() else 0o644)
    return tuple(weight_files(directory))
