"""The finished model as a directory that plain transformers loads."""

from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from trainyard._outputs import weight_files
from workers.trainers.failures import ExportFailed


def export(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, directory: Path) -> tuple[str, ...]:
    """Write safetensors, configuration and tokenizer; the weight files in their fixed order.

    Raises ExportFailed.
    """
    try:
        model.save_pretrained(directory)
        tokenizer.save_pretrained(directory)
    except (OSError, ValueError, RuntimeError) as error:
        raise ExportFailed(f"could not export the model: {error}") from error
    for path in directory.iterdir():
        # safetensors writes 0600, and others than this process's user read the result.
        path.chmod(0o644)
    return tuple(weight_files(directory))
