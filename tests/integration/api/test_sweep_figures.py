"""GET /v1/sweeps/{id}/figures/…: numbers and pictures of every kind, and every refusal with its way out."""

import base64
import hashlib
import math
import re
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from app.domain.sweeps.pictures.svg import STYLE
from app.domain.sweeps.states import TrialState
from app.models import TrialReport
from app.security.permissions import Role
from tests.builders.sweeps import make_sweep, make_sweep_document, make_trial
from tests.systems.apps import Api

JSON, SVG = "application/json", "image/svg+xml"
FIGURES = ("history", "parallel", "importance", "slice", "rungs", "front")
ASHA = {"name": "asha", "unit": "steps", "min": 3, "max": 27, "reduction": 3}
PARAMETERS = {
    "learning_rate": {"type": "double", "min": 1e-5, "max": 1e-1, "scale": "log"},
    "lr_scheduler_type": {"type": "categorical", "values": ["linear", "cosine"]},
    "warmup_ratio": {"type": "double", "min": 0.0, "max": 0.2, "only_if": {"lr_scheduler_type": ["cosine"]}},
    "weight_decay": 0.1,
}
TWO = [{"metric": "eval_loss"}, {"metric": "rank_memory_mb_max", "goal": "minimize"}]


def values(number: int) -> dict[str, Any]:
    rate = {"learning_rate": 10.0 ** -(1 + number % 5), "weight_decay": 0.1}
    if number % 2:
        return {**rate, "lr_scheduler_type": "linear"}
    return {**rate, "lr_scheduler_type": "cosine", "warmup_ratio": 0.1}


def loss(number: int) -> float:
    return (math.log10(values(number)["learning_rate"]) + 3) ** 2 + number / 100 + 1.0


def sweep_of(api: Api, completed: int, *, objective: Any = None, name: str = "search", **changes: Any) -> str:
    """A sweep whose completed trials have the values above, and one that runs."""
    wanted = objective or {"metric": "eval_loss"}
    document = make_sweep_document(parameters=PARAMETERS, objective=wanted, **changes) | {"name": name}
    with api.db.write() as session:
        sweep = make_sweep(session, document=document)
        for number in range(completed):
            measured = [loss(number), 1000.0 - number] if isinstance(objective, list) else [loss(number)]
            make_trial(session, sweep, values=values(number), objectives=measured)
        make_trial(session, sweep, values=values(completed), state=TrialState.RUNNING)
        return str(sweep.id)


def shown(api: Api, sweep_id: str, figure: str, query: str = "") -> Any:
    return api.get(f"/v1/sweeps/{sweep_id}/figures/{figure}{query}")


def drawn(api: Api, sweep_id: str, figure: str) -> str:
    answer = api.call("GET", f"/v1/sweeps/{sweep_id}/figures/{figure}", headers={"Accept": SVG})
    text = answer.get_data(as_text=True)
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, f"{SVG}; charset=utf-8"), text
    return text


def refused(api: Api, sweep_id: str, figure: str, status: int, query: str = "", **more: Any) -> dict[str, Any]:
    answer = api.call("GET", f"/v1/sweeps/{sweep_id}/figures/{figure}{query}", **more)
    return api.problem(answer, status)


@pytest.mark.both_databases
def test_history_has_values_by_trial_and_the_best_so_far(api: Api) -> None:
    sweep_id = sweep_of(api, 4)
    with api.db.write() as session:
        sweep = make_sweep(session, document=make_sweep_document(objective={"metric": "x", "goal": "maximize"}))
        for state, objectives, violations in (
            (TrialState.COMPLETED, [1.0], []),
            (TrialState.STOPPED, [5.0], []),
            (TrialState.COMPLETED, [4.0], [0.5]),
            (TrialState.FAILED, None, []),
            (TrialState.CANCELLED, None, []),
            (TrialState.COMPLETED, [3.0], [-0.5]),
            (TrialState.EXPLOITED, [2.0], []),
        ):
            make_trial(session, sweep, state=state, objectives=objectives, violations=violations)

    found, other = shown(api, sweep_id, "history"), shown(api, sweep.id, "history")

    assert found["objective"] == {"metric": "eval_loss", "goal": "minimize"}
    assert [(each["number"], each["value"]) for each in found["points"]] == [(i, loss(i)) for i in range(4)]
    assert [each["number"] for each in found["best"]] == [0, 1, 2]
    assert [(each["number"], each["state"], each["is_feasible"]) for each in other["points"]] == [
        (0, "COMPLETED", True),
        (1, "STOPPED", True),
        (2, "COMPLETED", False),
        (5, "COMPLETED", True),
        (6, "STOPPED", True),
    ]
    assert other["best"] == [{"number": 0, "value": 1.0}, {"number": 5, "value": 3.0}]
    assert other["measured"] == 5


def test_parallel_and_slices_have_axes_and_positions(api: Api) -> None:
    sweep_id = sweep_of(api, 3)

    lines, plots = shown(api, sweep_id, "parallel"), shown(api, sweep_id, "slice")
    chosen = shown(api, sweep_id, "parallel", "?parameters=warmup_ratio,learning_rate")

    assert [axis["name"] for axis in lines["axes"]] == [*list(PARAMETERS)[:3], "eval_loss"]
    assert lines["axes"][0] == {
        "name": "learning_rate",
        "scale": "log",
        "min": 1e-5,
        "max": 0.1,
        "values": [],
        "is_conditional": False,
    }
    assert lines["axes"][1]["values"] == ["linear", "cosine"]
    assert [line["positions"][:3] for line in lines["trials"]] == [
        pytest.approx([1.0, 1.0, 0.5]),
        pytest.approx([0.75, 0.0, None]),
        pytest.approx([0.5, 1.0, 0.5]),
    ]
    assert (lines["best"], lines["constants"]) == (2, ["weight_decay"])
    assert [axis["name"] for axis in chosen["axes"]] == ["warmup_ratio", "learning_rate", "eval_loss"]
    assert [each["values"] for each in plots["parameters"]] == [
        [0.1, 0.01, 0.001],
        ["cosine", "linear", "cosine"],
        [0.1, None, 0.1],
    ]
    assert [each["value"] for each in plots["trials"]] == [loss(i) for i in range(3)]


def test_points_are_thinned(api: Api) -> None:
    sweep_id = sweep_of(api, 30)

    for figure, items in (("history", "points"), ("parallel", "trials"), ("slice", "trials")):
        found = shown(api, sweep_id, figure, "?max_points=10")
        assert (found["measured"], len(found[items])) == (30, 10)
        assert 2 in [each["number"] for each in found[items]]  # the best


@pytest.mark.both_databases
def test_rungs_have_counts_and_reports(api: Api) -> None:
    trials: list[tuple[TrialState, list[tuple[int, float | None, bool]]]] = [
        (TrialState.COMPLETED, [(3, 2.0, True), (9, 1.5, True)]),
        (TrialState.STOPPED, [(3, None, False)]),
        (TrialState.STOPPED, [(3, 1.0, True), (9, 1.75, False)]),
    ]
    with api.db.write() as session:
        sweep = make_sweep(session, document=make_sweep_document(early_stopping=ASHA))
        for number, (state, reports) in enumerate(trials):
            make_trial(session, sweep, state=state, objectives=[1.0])
            for rung, value, continues in reports:
                sweep.seq += 1
                session.add(
                    TrialReport(
                        sweep_id=sweep.id,
                        number=number,
                        rung=rung,
                        seq=sweep.seq,
                        value=value,
                        continues=continues,
                        rank=1,
                        compared=2,
                    )
                )

    found = shown(api, sweep.id, "rungs")

    assert (found["early_stopping"], found["unit"]) == ("asha", "steps")
    assert [
        (each["rung"], each["trials"], each["continued"], each["best"], each["median"], each["is_last"])
        for each in found["rungs"]
    ] == [(3, 3, 2, 1.0, 1.5, False), (9, 2, 1, 1.5, 1.625, False), (27, 0, 0, None, None, True)]
    assert found["rungs"][0]["reports"][1] == {"number": 1, "value": None, "continues": False, "rank": 1, "compared": 2}


def test_front_has_two_objectives_and_the_best_by_all(api: Api) -> None:
    sweep_id = sweep_of(api, 5, objective=TWO)

    found = shown(api, sweep_id, "front")
    swapped = shown(api, sweep_id, "front", "?x=rank_memory_mb_max&y=eval_loss")

    assert (found["x"]["metric"], found["y"]["metric"], found["objectives"]) == ("eval_loss", "rank_memory_mb_max", 2)
    assert [(each["x"], each["y"]) for each in found["points"]] == [(loss(i), 1000.0 - i) for i in range(5)]
    assert [each["number"] for each in found["points"] if each["is_best"]] == [2, 3, 4]
    assert [(each["y"], each["x"]) for each in swapped["points"]] == [(loss(i), 1000.0 - i) for i in range(5)]
    assert shown(api, sweep_id, "history", "?objective=rank_memory_mb_max")["best"][-1]["number"] == 4


@pytest.mark.long
def test_importances_name_what_matters(api: Api) -> None:
    one, two = sweep_of(api, 40), sweep_of(api, 40, objective=TWO)

    found, of_front = shown(api, one, "importance"), shown(api, two, "importance")
    of_loss = shown(api, two, "importance", "?objective=eval_loss")

    assert (found["completed"], found["best"], found["objective"]["metric"]) == (40, 5, "eval_loss")
    assert found["parameters"][0]["name"] == "learning_rate"
    assert sum(each["importance"] for each in found["parameters"]) == pytest.approx(1.0)
    assert found["parameters"][-1] == {
        "name": "weight_decay",
        "importance": 0.0,
        "trials": 40,
        "is_constant": True,
        "is_conditional": False,
    }
    assert {each["name"]: each["trials"] for each in found["parameters"]}["warmup_ratio"] == 20
    assert of_front["objective"] is None
    assert of_loss["parameters"] == found["parameters"]


@pytest.mark.parametrize("figure", FIGURES)
def test_each_figure_is_drawn_for_those_who_accept_svg(api: Api, figure: str) -> None:
    more = {"early_stopping": ASHA} if figure == "rungs" else {}
    sweep_id = sweep_of(api, 12, objective=TWO if figure == "front" else None, name="a search", **more)

    text = drawn(api, sweep_id, figure)

    title = ET.fromstring(text).findtext("{http://www.w3.org/2000/svg}title")
    assert str(title).startswith("a search: ")


def test_a_picture_applies_its_own_style_and_nothing_else(api: Api) -> None:
    sweep_id = sweep_of(api, 2)
    answer = api.call("GET", f"/v1/sweeps/{sweep_id}/figures/history", headers={"Accept": SVG})

    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in answer.headers["Content-Security-Policy"]
    assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'; ")
    assert re.findall("<style>(.*?)</style>", answer.get_data(as_text=True), re.DOTALL) == [STYLE]
    assert "style=" not in answer.get_data(as_text=True)


@pytest.mark.parametrize(
    ("accept", "media"),
    [
        ("", JSON),
        ("*/*", JSON),
        ("application/json", JSON),
        ("application/json, image/svg+xml", JSON),
        ("image/svg+xml;q=0.5, application/json;q=0.9", JSON),
        ("image/avif,image/webp,image/svg+xml,image/*,*/*;q=0.8", SVG),  # as browsers ask for an <img>
        ("text/html", JSON),
        ("nonsense", JSON),
    ],
)
def test_what_is_accepted_decides(api: Api, accept: str, media: str) -> None:
    sweep_id = sweep_of(api, 1)

    answer = api.call("GET", f"/v1/sweeps/{sweep_id}/figures/history", headers={"Accept": accept})

    assert (answer.status_code, answer.mimetype) == (200, media)


def test_a_sweep_without_trials_has_empty_figures(api: Api) -> None:
    sweep_id = sweep_of(api, 0, early_stopping=ASHA)

    for figure in ("history", "parallel", "slice", "rungs"):
        assert "no trial" in drawn(api, sweep_id, figure)
    assert shown(api, sweep_id, "history")["points"] == []
    assert [each["trials"] for each in shown(api, sweep_id, "rungs")["rungs"]] == [0, 0, 0]


def test_importances_wait_for_enough_trials(api: Api) -> None:
    sweep_id = sweep_of(api, 9)

    found = shown(api, sweep_id, "importance")

    assert (found["completed"], found["needed"], found["parameters"]) == (9, 10, [])
    assert "importances need 10 completed trials, and there are 9" in drawn(api, sweep_id, "importance")


@pytest.mark.parametrize(
    ("figure", "words"),
    [("rungs", "its early_stopping is none; figures/history"), ("front", "the sweep has one objective, eval_loss")],
)
def test_a_figure_that_a_sweep_can_not_have_is_refused_with_a_way_out(api: Api, figure: str, words: str) -> None:
    error = refused(api, sweep_of(api, 9), figure, 400, headers={"Accept": SVG})

    assert error["code"] == "INVALID_ARGUMENT"
    assert words in error["message"]


@pytest.mark.parametrize(
    ("figure", "query", "status", "field", "words"),
    [
        ("history", "?objective=eval_los", 400, "objective", "known: eval_loss, rank_memory_mb_max"),
        ("importance", "?objective=loss", 400, "objective", "no objective of this sweep"),
        ("slice", "?parameters=learning_rat", 400, "parameters", "did you mean learning_rate"),
        ("parallel", "?parameters=", 422, "parameters", "must not be empty"),
        ("front", "?y=eval_loss", 400, "y", "is the other axis, too"),
        ("front", "?x=nothing", 400, "x", "no objective of this sweep"),
        ("history", "?max_points=3", 422, "max_points", "10"),
        ("history", "?max_points=10001", 422, "max_points", "10000"),
        ("history", "?objective=", 422, "objective", ""),
        ("rungs", "?objective=eval_loss", 422, "objective", ""),
    ],
)
def test_bad_parameters_are_named(api: Api, figure: str, query: str, status: int, field: str, words: str) -> None:
    error = refused(api, sweep_of(api, 9, objective=TWO), figure, status, query)

    assert error["details"][0]["field"] == field
    assert words in error["details"][0]["message"]


@pytest.mark.parametrize("figure", FIGURES)
def test_a_sweep_of_another_project_is_missing(api: Api, figure: str) -> None:
    sweep_id = sweep_of(api, 1)
    stranger = api.make_key(Role.ADMIN, "team-b")

    missing = refused(api, sweep_id, figure, 404, key=stranger)

    assert missing["message"] == f"no sweep {sweep_id}"
    refused(api, "sweep-x", figure, 404)
