"""Fixtures of the tests that run the API in their own process."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.database.engine import Database
from app.services.operations.diagnosis.site import Site, open_site
from config.settings import Settings
from tests.systems.apps import Api
from tests.systems.commands import run
from tests.systems.engines import engine_on
from tests.systems.examining import BRIEFLY, prepared
from tests.systems.forked_supervisors import ForkedSupervisors
from tests.systems.supervising import World


@pytest.fixture
def api(database: Database, tmp_path: Path) -> Iterator[Api]:
    made = Api(database, tmp_path)
    yield made
    made.close()


@pytest.fixture
def sqlite_api(sqlite_url: str, tmp_path: Path) -> Iterator[Api]:
    """For what does not depend on the kind of database."""
    bound = Database().bind(engine_on(sqlite_url))
    made = Api(bound, tmp_path)
    yield made
    made.close()
    bound.close()


@pytest.fixture
def db(database: Database, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Database:
    """The prepared database that commands find; nothing listens at the broker's address."""
    monkeypatch.setenv("TRAINYARD_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("TRAINYARD_DATABASE_URL", database_url)
    monkeypatch.setenv("TRAINYARD_BROKER_URL", "redis://127.0.0.1:1/0")
    assert run("db", "init").exit_code == 0
    return database


@pytest.fixture
def make_world(
    tmp_path: Path, sqlite_url: str, forked_supervisors: ForkedSupervisors
) -> Iterator[Callable[..., World]]:
    """A node in miniature with settings of its own."""
    worlds: list[World] = []

    def make(**variables: str) -> World:
        worlds.append(World(tmp_path, sqlite_url, spawn=forked_supervisors.spawn, **variables))
        return worlds[-1]

    yield make
    for made in worlds:
        made.close()


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    """A node in miniature, on SQLite."""
    return make_world()


@pytest.fixture
def bare_world(make_world: Callable[..., World]) -> World:
    """The same without bubblewrap."""
    return make_world(TRAINYARD_NODE_SANDBOX="process")


@pytest.fixture
def any_world(tmp_path: Path, database_url: str, forked_supervisors: ForkedSupervisors) -> Iterator[World]:
    """The same on each kind of database."""
    made = World(tmp_path, database_url, spawn=forked_supervisors.spawn)
    yield made
    made.close()


@pytest.fixture
def deployment(database_url: str, redis_url: str, tmp_path: Path) -> Settings:
    """Of a prepared deployment in which nothing runs."""
    return prepared(tmp_path, database_url, redis_url)


@pytest.fixture
def site(deployment: Settings) -> Iterator[Site]:
    """The same as the doctor sees it."""
    with open_site(deployment, patience_seconds=BRIEFLY) as site:
        yield site
