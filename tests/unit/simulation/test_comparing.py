"""The comparison of policies: every one on the same trace, as rows, as JSON and as a picture."""

import json
from xml.etree import ElementTree as ET

import pytest

from app.domain.scheduling.planner import SchedulingPolicy
from simulation.chart import draw, duration
from simulation.comparing import HEADS, WAIT_HEADS, compare, documents, rows, wait_rows
from simulation.jobs import Behaviour
from simulation.planners import POLICIES
from tests.builders.simulated import make_site, make_traced

TRACE = [
    make_traced(at * 50.0, 400, gpus=1 + at % 2, project=["<red>", "blue"][at % 2], is_preemptible=at % 3 == 0)
    for at in range(20)
]
RESULTS = compare(TRACE, make_site(2, 2), POLICIES, SchedulingPolicy(reserve_after_seconds=1800), Behaviour())
REPORTS = {name: report for name, (_, report) in RESULTS.items()}


def test_every_policy_has_a_line_under_the_heads() -> None:
    assert [row[0] for row in rows(REPORTS)] == list(POLICIES)
    assert {len(row) for row in rows(REPORTS)} == {len(HEADS)}
    assert {len(row) for row in wait_rows(REPORTS)} == {len(WAIT_HEADS)}
    assert [row[:3] for row in wait_rows({"default": REPORTS["default"]})][:2] == [
        ("default", "project", "<red>"),
        ("default", "project", "blue"),
    ]


def test_where_no_job_started_there_is_a_line_without_waits() -> None:
    refused = compare([make_traced(gpus=3)], make_site(1), ["default"], SchedulingPolicy(), Behaviour())
    (row,) = rows({name: report for name, (_, report) in refused.items()})

    assert row[2:6] == ("", "", "", "")
    assert row[-1] == "0 of 1"
    assert "<svg" in draw(refused, title="nothing")


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(KeyError, match="magic"):
        compare(TRACE, make_site(1), ["magic"], SchedulingPolicy(), Behaviour())


def test_programs_get_the_same_figures_as_json() -> None:
    figures = json.loads(json.dumps(documents(REPORTS)))

    assert figures["fifo"]["waits"]["project"]["blue"]["jobs"] == 10
    assert figures["fifo"]["shares"]["blue"]["got_device_seconds"] > 0
    assert 0 < figures["default"]["utilisation"]["h100"] <= 1


def test_the_picture_is_an_svg_with_a_chart_for_each_policy_and_project() -> None:
    root = ET.fromstring(draw(RESULTS, title="20 jobs & more"))
    texts = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]

    assert texts[0] == "20 jobs & more"
    assert {"<red>", "blue", *POLICIES} <= set(texts)
    assert len(list(root.iter("{http://www.w3.org/2000/svg}polygon"))) == 2 * len(POLICIES)
    bottom = float(root.get("height") or 0)
    assert all(float(each.get("y") or 0) < bottom for each in root.iter("{http://www.w3.org/2000/svg}text"))


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "0 s"), (45, "45 s"), (89, "89 s"), (720, "12 min"), (12_600, "3.5 h"), (181_440, "2.1 d")],
)
def test_durations_are_shown_in_a_fitting_unit(seconds: float, said: str) -> None:
    assert duration(seconds) == said
