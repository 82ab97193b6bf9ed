"""What the trainer tests share: a tiny model with dropout, a few real records, and servers that fork ranks."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from tests.systems.once import once
from tests.trainers.forked import fork_servers
from tests.trainers.in_process import RAN, Outcome, make_assets


@pytest.fixture(scope="session", autouse=True)
def _forked_ranks(run_directory: Path, owned_pids: set[int]) -> Iterator[None]:
    with fork_servers(run_directory, owned_pids):
        yield


@pytest.fixture(scope="session")
def assets(run_directory: Path, demo_assets: Path) -> Path:
    """The demo's model and records, the model with dropout: only then do random numbers matter."""
    return once(run_directory / "assets-with-dropout", lambda directory: make_assets(directory, demo_assets))


@pytest.fixture
def record_seconds(
    request: pytest.FixtureRequest, record_property: Callable[[str, object], None]
) -> Callable[[Iterable[Outcome]], None]:
    """Say how long a test's own runs took, of all that are made together: `make matrix` shows it."""
    name = request.node.nodeid
    return lambda outcomes: record_property(RAN, (name, sum(outcome.seconds for outcome in outcomes)))
