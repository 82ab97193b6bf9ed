"""What the trainer tests share: a tiny model with dropout and a few real records."""

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests.trainers.in_process import RAN, Outcome, make_assets


@pytest.fixture(scope="session")
def assets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's model and records, the model with dropout: only then do random numbers matter."""
    return make_assets(tmp_path_factory.mktemp("assets") / "demo")


@pytest.fixture
def record_seconds(
    request: pytest.FixtureRequest, record_property: Callable[[str, object], None]
) -> Callable[[Iterable[Outcome]], None]:
    """Say how long a test's own runs took, of all that are made together: `make matrix` shows it."""
    name = request.node.nodeid
    return lambda outcomes: record_property(RAN, (name, sum(outcome.seconds for outcome in outcomes)))
