"""Makes the engine without a model known by a name of its own."""

import pytest

from tests.unit.workers.trainers.inference.stand_in_engine import LINE, NAME
from workers.trainers.inference.engines import ENGINES


@pytest.fixture(autouse=True)
def _stand_in_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENGINES, NAME, LINE)
