"""Reads what an evaluation has measured from its output, so that answers about it need no files."""

import logging

from app.domain.errors import TrainyardError
from app.domain.evaluations import results
from app.domain.evaluations.results import FILE, MAX_BYTES, Results
from app.domain.spec.model import JobDocument
from app.storage.beneath import directory_opened, file_opened
from workers.supervisor.recording.model_export import Output

log = logging.getLogger(__name__)


def read_results(output: Output, document: JobDocument) -> Results:
    """By label of the document's benchmarks; empty where the file is missing or has another form.

    The artifacts still have it.
    """
    if FILE not in output.files or document.inference is None:
        return {}
    try:
        with directory_opened(output.directory) as root, file_opened(root, FILE) as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise ValueError(f"{FILE} has more than {MAX_BYTES} bytes")
        return results.read(content, [each.name for each in document.inference.benchmarks])
    except (OSError, ValueError, TrainyardError):
        log.warning("%s of the evaluation can't be read", FILE, exc_info=True)
        return {}
