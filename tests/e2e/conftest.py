"""These tests run the whole system. A start takes seconds of processor time: most files share one."""

import json
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.systems.installations import make_system, running_system
from tests.systems.system import System

__all__ = ["make_system"]

HERE = Path(__file__).parent

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def assets(demo_assets: Path) -> dict[str, str]:
    """The demo's model and data, which are only read: where each is, as the program says that finds all built."""
    command = [sys.executable, "-m", "examples.build_demo_assets", "--out", str(demo_assets)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True, timeout=120)
    return dict(json.loads(done.stdout.splitlines()[-1]))


class SharedSystems:
    """Systems of several files: started for the first test that needs one, ended after the last one of this folder."""

    def __init__(self, folders: pytest.TempPathFactory, owned_pids: set[int]) -> None:
        self._folders, self._owned_pids = folders, owned_pids
        self._running: dict[str, System] = {}
        self._ends = ExitStack()

    def get(self, name: str, *nodes: str, **settings: str) -> System:
        if name not in self._running:
            system = running_system(self._folders.mktemp(name), self._owned_pids, *nodes, **settings)
            self._running[name] = self._ends.enter_context(system)
        return self._running[name]

    def close(self) -> None:
        self._ends.close()
        self._running.clear()


SHARED = pytest.StashKey[SharedSystems]()


@pytest.fixture(scope="session")
def shared_systems(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, owned_pids: set[int]
) -> Iterator[SharedSystems]:
    systems = SharedSystems(tmp_path_factory, owned_pids)
    request.session.stash[SHARED] = systems
    yield systems
    systems.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """Idle processes poll: the systems end with this folder's last test, and not with the session."""
    try:
        return (yield)
    finally:
        systems = item.session.stash.get(SHARED, None)
        if systems is not None and (nextitem is None or not nextitem.path.is_relative_to(HERE)):
            systems.close()


@pytest.fixture
def shared_system(shared_systems: SharedSystems) -> System:
    """With the node `n1`, for tests that leave it as it was: no part killed, no job left."""
    # Ranks that tests kill would count as faults of the node.
    return shared_systems.get("one_node", "n1", TRAINYARD_QUARANTINE_FAULTS="0")


@pytest.fixture
def two_nodes(shared_systems: SharedSystems) -> System:
    """The same with `n1` and `n2`; failed scripts are retried at once."""
    return shared_systems.get("two_nodes", "n1", "n2", TRAINYARD_SCHEDULER_RETRY_BASE_SECONDS="0.1")
