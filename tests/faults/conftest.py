"""These tests run the whole system; those of faults share one, until something was found wrong with it."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.faults.cluster import SHORT, Cluster, Outside
from tests.faults.completed_once import one_node, training
from tests.faults.crash_points import Point
from tests.faults.seeds import SEED
from tests.systems.installations import make_system
from tests.systems.servers import PostgresServer

__all__ = ["make_system", "one_node", "training"]


def pytest_report_header() -> str:
    return f"FAULTS_SEED={SEED} does the same random faults again"


class Standing:
    """The system that stands at the moment, and the PostgreSQL that it keeps."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str],
        points: Sequence[Point],
        postgres: PostgresServer,
        outside: Outside,
    ) -> None:
        self._folder = folder
        self._settings = settings
        self._points = points
        self._outside = outside
        self._postgres = postgres
        self._count = 0
        self._cluster: Cluster | None = None

    def cluster(self) -> Cluster:
        """As it was left, or a new one."""
        if self._cluster is None:
            self._count += 1
            name = f"system_{self._count}"
            self._postgres.execute(f"CREATE DATABASE {name}")
            self._cluster = Cluster(
                self._folder / name,
                self._settings,
                points=self._points,
                postgres=self._postgres,
                database=name,
                outside=self._outside,
            )
            self._cluster.start("n1", "n2")
        self._cluster.is_sound = False
        return self._cluster

    @property
    def server_pid(self) -> int:
        """Another one after each stop."""
        return self._postgres.pid

    def drop(self) -> None:
        """The next one gets another: what is wrong now must not be blamed on it."""
        if self._cluster is not None:
            self._cluster.stop()
            self._cluster = None


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    """Of the systems; a module in which nothing is waited for may have others."""
    return SHORT


@pytest.fixture(scope="module")
def points() -> Sequence[Point]:
    """Of the systems; a module that arms some has them."""
    return ()


@pytest.fixture(scope="module")
def standing(
    tmp_path_factory: pytest.TempPathFactory, settings: Mapping[str, str], points: Sequence[Point], owned_pids: set[int]
) -> Iterator[Standing]:
    """With a server of its own, because it is stopped."""
    server = PostgresServer(commits_wait=True)
    with ExitStack() as stack:
        stack.callback(server.close)
        server.start()
        owned_pids.add(server.pid)
        outside = Outside()
        stack.callback(outside.close)
        there = Standing(tmp_path_factory.mktemp("faults"), settings, points, server, outside)
        stack.callback(there.drop)
        yield there


@pytest.fixture
def cluster(standing: Standing, owned_pids: set[int]) -> Iterator[Cluster]:
    """A system of two nodes on PostgreSQL, each process with its own lines to the servers."""
    system = standing.cluster()
    yield system
    if system.is_sound:
        owned_pids.update({standing.server_pid, *(process.pid for process in system.everything())})
    else:
        standing.drop()
