"""Finds the user's code that benchmarks of an evaluation run: files, and directories of the harness's tasks."""

from pathlib import Path

from app.domain.spec.document import benchmark_files
from app.domain.spec.inference import TASK_DIR
from app.domain.spec.model import JobDocument
from workers.prepare.inputs.input_library import Library
from workers.prepare.inputs.resolve_inputs import find_code, find_script


def find_benchmark_files(library: Library, document: JobDocument) -> dict[str, Path]:
    """Each file or directory on this machine, by its location in the document. Raises AttemptFailed."""
    if document.inference is None:
        return {}
    return {location: _found(library, location, field) for location, field in benchmark_files(document)}


def _found(library: Library, location: str, field: str) -> Path:
    if field.endswith(TASK_DIR):
        return find_code(library, location)
    return find_script(library, location, "benchmark's file")
