"""Fixtures of the tests of gateways."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.database.engine import Database
from tests.systems.gateways import GatewaySite
from tests.systems.port_sites import HOSTS, PATHS, PortSite, echoing
from tests.systems.session_sites import SessionSite


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


@pytest.fixture
def make_session_site(database: Database, tmp_path: Path) -> Iterator[Callable[..., SessionSite]]:
    """Sites with settings of their own, on which no job runs yet."""
    made: list[SessionSite] = []

    def make(**settings: str) -> SessionSite:
        made.append(SessionSite(database, tmp_path, **settings))
        return made[-1]

    yield make
    for site in made:
        site.close()


@pytest.fixture
def make_port_site(database: Database, tmp_path: Path) -> Iterator[Callable[..., PortSite]]:
    made: list[PortSite] = []

    def make(mode: str = PATHS, **settings: str) -> PortSite:
        made.append(PortSite(database, tmp_path, mode, **settings))
        made[-1].serve()
        return made[-1]

    yield make
    for site in made:
        site.close()


@pytest.fixture(params=[PATHS, HOSTS], ids=["paths", "hosts"])
def port_site(request: pytest.FixtureRequest, make_port_site: Callable[..., PortSite]) -> PortSite:
    return make_port_site(request.param)


@pytest.fixture
def echo() -> Iterator[int]:
    with echoing() as port:
        yield port
