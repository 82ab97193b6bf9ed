"""The dashboard for Grafana: it asks for metrics and labels that there are, and shows each metric."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.domain.lifecycle.states import HELD, JobState
from app.domain.sweeps.states import TrialState
from tests.systems.apps import Api

DASHBOARD = Path(__file__).parents[3] / "deploy/grafana/trainyard.json"
# Finished preflights by verdict: for finding faults, not for watching.
NOT_SHOWN = {"trainyard_preflights_remembered"}


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return found


def queries() -> Iterator[str]:
    board = dashboard()
    yield from (target["expr"] for panel in board["panels"] for target in panel.get("targets", ()))
    yield from (each["definition"] for each in board["templating"]["list"] if "definition" in each)


@pytest.fixture
def served(sqlite_api: Api) -> set[str]:
    """The names of all metrics, as they are declared."""
    sqlite_api.call("GET", "/v1/queues")
    said = sqlite_api.call("GET", "/metrics").get_data(as_text=True)
    return {name for name in re.findall(r"^# TYPE (\w+)", said, re.MULTILINE) if not name.endswith("_created")}


def test_every_query_names_metrics_that_are_served(served: set[str]) -> None:
    samples = served | {f"{name}_bucket" for name in served}

    asked = {name for query in queries() for name in re.findall(r"trainyard_\w+", query)}

    assert asked <= samples


def test_every_metric_is_shown(served: set[str]) -> None:
    asked = {name.removesuffix("_bucket") for query in queries() for name in re.findall(r"trainyard_\w+", query)}

    assert served - asked == NOT_SHOWN


def test_states_that_are_asked_for_exist() -> None:
    states = {
        state
        for query in queries()
        for group in re.findall(r'state=~?"([A-Z|]+)"', query)
        for state in group.split("|")
    }

    assert states <= {str(state) for state in (*JobState, *TrialState)}
    held = next(query for query in queries() if "state=~" in query)
    assert set(re.findall(r"[A-Z]{5,}", held)) == {str(state) for state in HELD}


def test_panels_have_their_own_ids_and_places() -> None:
    panels = dashboard()["panels"]
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]

    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len(set(places)) == len(places)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)
    assert all(panel["title"] for panel in panels)
