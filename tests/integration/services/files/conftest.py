"""A control plane on SQLite with one project: files do not depend on the kind of database."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.database.engine import Database
from app.services.requests.control_plane import ControlPlane
from tests.builders.factories import make_project
from tests.builders.files import make_plane
from tests.systems.engines import engine_on


@pytest.fixture
def plane(sqlite_url: str, tmp_path: Path) -> Iterator[ControlPlane]:
    db = Database().bind(engine_on(sqlite_url))
    with db.write() as session:
        make_project(session)
    yield make_plane(db, tmp_path)
    db.close()


@pytest.fixture
def stored(tmp_path: Path) -> Callable[[], list[str]]:
    """Reads the names of all files of the storage, unfinished ones too."""
    root = tmp_path / "data" / "files"
    return lambda: sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())
