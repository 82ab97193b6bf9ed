"""Rules of the files that a fine-tuning job names: purpose, status, and the shape that its method needs. Pure."""

from typing import NamedTuple

from app.compat.openai.fine_tuning.naming import DPO, REINFORCEMENT, SUPERVISED
from app.domain.errors import BadSpec
from app.domain.files.inspection import first_of
from app.domain.files.purposes import ERROR, FINE_TUNE
from app.domain.files.shapes import MESSAGES, PREFERENCE, PROMPT_COMPLETION, PROMPTS, TEXT

TRAINING_FILE, VALIDATION_FILE = "training_file", "validation_file"
SHAPES = {SUPERVISED: (MESSAGES, PROMPT_COMPLETION, TEXT), DPO: (PREFERENCE,), REINFORCEMENT: (MESSAGES, PROMPTS)}
_WORDS = {
    MESSAGES: "chats (messages)",
    PROMPTS: "prompts (messages without an answer)",
    PROMPT_COMPLETION: "prompt and completion",
    TEXT: "text",
    PREFERENCE: "preferences (input, preferred_output and non_preferred_output)",
}


class UploadedDataFile(NamedTuple):
    """What is known of an uploaded file; ``records`` and ``shape`` are None until they are."""

    id: str
    purpose: str
    status: str
    status_details: str
    records: int | None
    shape: str | None


def refuse_unfit(file: UploadedDataFile, method: str, field: str) -> None:
    """Raise BadSpec for a file that the method can't train on."""
    if file.purpose != FINE_TUNE:
        raise BadSpec(
            f"{file.id} was uploaded with purpose {file.purpose}; upload it with purpose {FINE_TUNE}", field=field
        )
    if file.status == ERROR:
        raise BadSpec(f"{file.id} can't be used: {first_of(file.status_details)}", field=field)
    needed = SHAPES[method]
    if file.shape is not None and file.shape not in needed:
        found, wanted = _words(file.shape), " or ".join(map(_words, needed))
        raise BadSpec(f"{file.id} has {found}, but the method {method} needs {wanted}", field=field)


def records_of(file: UploadedDataFile) -> int:
    """Raises BadSpec while it is unknown."""
    if file.records is None:
        raise BadSpec(
            f"how many records {file.id} has is known once it is processed: wait for that "
            "(files.wait_for_processing), or give n_epochs and batch_size as numbers",
            field=TRAINING_FILE,
        )
    return file.records


def _words(shape: str) -> str:
    return _WORDS.get(shape, shape)
