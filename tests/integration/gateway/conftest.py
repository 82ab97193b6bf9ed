"""Fixtures of the tests of gateways."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.database.engine import Database
from tests.systems.gateways import GatewaySite


@pytest.fixture
def make_site(database: Database, tmp_path: Path) -> Iterator[Callable[..., GatewaySite]]:
    """Sites with settings of their own, on which nothing serves yet."""
    made: list[GatewaySite] = []

    def make(**settings: str) -> GatewaySite:
        made.append(GatewaySite(database, tmp_path, **settings))
        return made[-1]

    yield make
    for site in made:
        site.close()


@pytest.fixture
def site(make_site: Callable[..., GatewaySite]) -> GatewaySite:
    """A gateway in this process, without services."""
    return make_site().serve()
