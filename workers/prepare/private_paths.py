"""Paths that sandboxes hide from whatever runs in them."""

from pathlib import Path

from app.storage.storage import Storage
from config.settings import Settings


def private_paths(settings: Settings, storage: Storage) -> tuple[Path, ...]:
    """Paths outside the data directory that no job may see: the results of all projects, and SQLite's files."""
    places = []
    stored = storage.local_path("jobs")
    if stored is not None:
        stored.mkdir(parents=True, exist_ok=True)  # a missing directory cannot be hidden
        places.append(stored.parent)
    scheme, _, path = settings.database.url.partition(":///")
    if scheme.startswith("sqlite") and path.startswith("/"):
        database = Path(path.partition("?")[0])
        places += [database.parent, *(database.with_name(database.name + end) for end in ("", "-wal", "-shm"))]
    return tuple(places)
