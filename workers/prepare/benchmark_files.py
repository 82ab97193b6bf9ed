"""Finds the user's code that benchmarks of an evaluation run."""

from pathlib import Path

from app.domain.spec.document import benchmark_files
from app.domain.spec.model import JobDocument
from workers.prepare.input_library import Library
from workers.prepare.resolve_inputs import find_script


def find_benchmark_files(library: Library, document: JobDocument) -> dict[str, Path]:
    """Each file on this machine, by its location in the document. Raises AttemptFailed."""
    if document.inference is None:
        return {}
    return {location: find_script(library, location, "benchmark's file") for location, _ in benchmark_files(document)}
