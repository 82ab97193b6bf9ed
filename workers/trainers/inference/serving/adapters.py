"""Adapters of the project's jobs, which the supervisor fetches."""

import threading
from pathlib import Path

from workers.rank.run_context import RunContext


class ProjectAdapters:
    """By the names in requests: JOB, or JOB/CHECKPOINT."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._lock = threading.Lock()
        self._fetched = 0

    @property
    def are_fetched(self) -> bool:
        """Whether one is being fetched now."""
        return self._fetched > 0

    def directory(self, name: str) -> Path:
        """As AdapterSource.directory."""
        job_id, _, checkpoint_id = name.partition("/")
        directory = f"{job_id}.{checkpoint_id}" if checkpoint_id else job_id
        with self._lock:
            self._fetched += 1
        try:
            return self._context.fetch_adapter(directory, job_id=job_id, checkpoint_id=checkpoint_id or None)
        finally:
            with self._lock:
                self._fetched -= 1
