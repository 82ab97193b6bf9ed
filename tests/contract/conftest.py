"""Fixtures of the tests that walk over the whole API: without rate limits, and no coordinator inspects data."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.database.engine import Database
from tests.systems.apps import Api
from tests.systems.engines import engine_on

SETTINGS = {
    "TRAINYARD_PREFLIGHT_ENABLED": "false",
    "TRAINYARD_API_RATE_PER_SECOND": "0",
    "TRAINYARD_API_WRONG_KEYS_PER_SECOND": "0",
}


@pytest.fixture
def api(database: Database, tmp_path: Path) -> Iterator[Api]:
    made = Api(database, tmp_path, **SETTINGS)
    yield made
    made.close()


@pytest.fixture
def sqlite_api(sqlite_url: str, tmp_path: Path) -> Iterator[Api]:
    """For what does not depend on the kind of database."""
    bound = Database().bind(engine_on(sqlite_url))
    made = Api(bound, tmp_path, **SETTINGS)
    yield made
    made.close()
    bound.close()
