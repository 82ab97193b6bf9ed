"""A sweep whose jobs a test runs by hand."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.builders.population_runs import PopulationRun
from tests.builders.sweep_runs import SweepRun
from tests.systems.apps import Api


@pytest.fixture
def make_run(api: Api) -> Iterator[Callable[..., SweepRun]]:
    made: list[SweepRun] = []

    def make(**changes: Any) -> SweepRun:
        made.append(SweepRun(api, **changes))
        return made[-1]

    yield make
    for run in made:
        run.close()


@pytest.fixture
def make_population(api: Api) -> Iterator[Callable[..., PopulationRun]]:
    made: list[PopulationRun] = []

    def make(**changes: Any) -> PopulationRun:
        made.append(PopulationRun(api, **changes))
        return made[-1]

    yield make
    for run in made:
        run.close()
