"""What an inspection reads of jobs that train nothing, besides their records, and what it leaves to the node."""

from app.domain.spec.document import benchmark_files
from app.domain.spec.inference import REPLICA, REQUESTS, TASK_DIR
from app.domain.spec.model import JobDocument

_FILE, _DIRECTORY = "benchmark's file", "task directory"


def benchmark_code(document: JobDocument) -> list[tuple[str, str, str]]:
    """(location, cause if missing, noun) of the code that an evaluation's benchmarks run.

    Planned evaluations look for theirs later.
    """
    if document.inference is None:
        return []
    found = benchmark_files(document)
    return [
        (location, "INVALID_CONFIG", _DIRECTORY if field.endswith(TASK_DIR) else _FILE) for location, field in found
    ]


def measures_tasks(document: JobDocument) -> bool:
    """Whether it has tasks of the harness, whose files name others."""
    return any(noun == _DIRECTORY for _, _, noun in benchmark_code(document))


def why_not_read(document: JobDocument) -> str:
    """Why the records of a job that trains nothing are not inspected; empty where they are."""
    if document.kind == REPLICA:
        return "a replica reads no data"
    if document.inference is not None and document.inference.task.type == REQUESTS:
        return "requests are checked when they are uploaded, and when they are answered"
    return ""
