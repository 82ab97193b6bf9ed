"""Every figure as SVG: well-formed, without scripts, with all text escaped, and readable for people and programs."""

import re
from collections.abc import Callable
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from app.domain.sweeps import figures
from app.domain.sweeps.figures import Rungs
from app.domain.sweeps.pictures import front, history, importance, parallel, rungs, slices, svg
from app.domain.sweeps.spec import Objective
from tests.builders.figure_points import LOSS, PARAMETERS, parameters, point, report

ODD = "<b>&\"'\x00\ud800\x1b]0;x</b>"  # no XML can have all of them
SVG = "{http://www.w3.org/2000/svg}"
MEMORY = Objective(metric="memory", goal="minimize")


def points(count: int, **more: object) -> list[figures.Point]:
    return [
        point(i, 1.0 + (i * 7 % 11) / 10, state="STOPPED" if i % 4 == 3 else "COMPLETED", is_feasible=i % 5 != 4)
        if i % 2
        else point(i, 1.0 + (i * 7 % 11) / 10, schedule="cosine", warmup=i / count / 5)
        for i in range(count)
    ]


def drawn_history(count: int, objective: Objective = LOSS, name: str = "support-lr") -> str:
    return history.draw(figures.history(points(count), objective, most=2000), name)


def drawn_parallel(count: int, objective: Objective = LOSS, name: str = "support-lr") -> str:
    return parallel.draw(figures.parallel(points(count), objective, parameters(), most=2000), name)


def drawn_slices(count: int, objective: Objective = LOSS, name: str = "support-lr") -> str:
    return slices.draw(figures.slices(points(count), objective, parameters(), most=2000), name)


def drawn_importance(count: int, objective: Objective = LOSS, name: str = "support-lr") -> str:
    found = {"learning_rate": 0.7, "lora_r": 0.295, "warmup": 0.005}
    values = [each.values for each in points(count)]
    return importance.draw(figures.importance(found, parameters(), values, objective), name)


def drawn_rungs(count: int, objective: Objective = LOSS, name: str = "support-lr") -> str:
    found = []
    for at in (100, 300) if count else ():
        reports = [report(i, at, 2.0 - i / count, continues=i * 100 < count * at) for i in range(0, count, at // 100)]
        reports.append(report(count, at, None, continues=False))
        found.append(figures.rung(at, reports, objective, trials=count, continued=count // 3, is_last=at == 300))
    return rungs.draw(Rungs(objective=objective, early_stopping="asha", unit="steps", rungs=found), name)


def drawn_front(count: int, objective: Objective = LOSS, name: str = "support-lr") -> str:
    trials = [(each, (each.value, float(1000 - each.number))) for each in points(count)]
    return front.draw(figures.front(trials, (objective, MEMORY), 0, 1, most=2000), name)


ALL = [drawn_history, drawn_parallel, drawn_slices, drawn_importance, drawn_rungs, drawn_front]
Draw = Callable[..., str]


@pytest.mark.parametrize("count", [0, 1, 2, 40])
@pytest.mark.parametrize("draw", ALL)
def test_pictures_are_well_formed_titled_and_without_scripts(draw: Draw, count: int) -> None:
    text = draw(count)

    root = ET.fromstring(text)
    ids = {each.get("id"): each.text for each in root.iter() if each.get("id")}
    named = [ids[each] for each in (root.get("aria-labelledby") or "").split()]
    assert (root.tag, root.get("role")) == (f"{SVG}svg", "img")
    assert all(named)
    assert "support-lr" in str(named[0])
    assert {each.tag.removeprefix(SVG) for each in root.iter()} <= {
        *("svg", "title", "desc", "style", "rect", "text", "line", "path", "circle", "g")
    }
    assert not re.search(r"javascript:|\son[a-z]+=|href|url\(|nan|inf\b", text)
    assert draw(count) == text


@pytest.mark.parametrize("draw", ALL)
def test_names_are_escaped_and_lose_what_xml_can_not_have(draw: Draw) -> None:
    text = draw(20, replace(LOSS, metric=f"m{ODD}"), name=f"n{ODD}")

    root = ET.fromstring(text)
    assert "<b>" not in text
    assert "n<b>&\"'\ufffd\ufffd\ufffd]0;x</b>" in str(root.findtext(f"{SVG}title"))


def test_values_of_parameters_are_escaped() -> None:
    odd = {**PARAMETERS, "schedule": {"type": "categorical", "values": ["linear", "<i>\x01", "<script>alert(1)"]}}
    trials = [point(0, 1.0, schedule="<i>\x01"), point(1, 2.0, schedule="<script>alert(1)")]

    for text in (
        parallel.draw(figures.parallel(trials, LOSS, parameters({**odd, "warmup": 0.1}), most=10), "x"),
        slices.draw(figures.slices(trials, LOSS, parameters({**odd, "warmup": 0.1}), most=10), "x"),
    ):
        shown = "".join(ET.fromstring(text).itertext())
        assert "<script>" not in text
        assert "<script>" in shown
        assert "<i>\ufffd" in shown


def places(text: str) -> list[tuple[float, float, str]]:
    """Where each line of text begins or ends, without turned ones."""
    found = re.findall(r'<text x="(-?[\d.]+)" y="(-?[\d.]+)"[^>]*>(?:<title>[^<]*</title>)?([^<]*)', text)
    return [(float(x), float(y), words) for x, y, words in found]


@pytest.mark.parametrize("draw", ALL)
def test_all_text_is_inside_of_the_picture(draw: Draw) -> None:
    text = draw(40)

    root = ET.fromstring(text)
    width, height = (float(root.get(side) or 0) for side in ("width", "height"))
    assert len(places(text)) > 5
    assert all(0 <= x <= width and 0 <= y <= height - 4 for x, y, _ in places(text))


@pytest.mark.parametrize("draw", ALL)
def test_no_two_texts_lie_on_each_other(draw: Draw) -> None:
    found = places(draw(40))

    assert len({(round(x), round(y)) for x, y, _ in found}) == len(found)


def test_history_marks_the_best_and_names_it_for_screen_readers() -> None:
    text = drawn_history(40)

    best = figures.history(points(40), LOSS, most=100).best
    assert text.count('class="best"') == len(best) + 1  # and in the legend
    assert f"The best so far goes from 1 in trial 0 to {best[-1].value:g} in trial {best[-1].number}." in text


def test_trials_at_one_place_are_drawn_once_and_many_are_smaller() -> None:
    same = [point(i, 1.0, lora_r=8) for i in range(1500)]

    text = history.draw(figures.history(same, LOSS, most=10_000), "x")

    assert 600 < text.count('class="done"') < 800
    assert 'r="2"' in text
    assert len(text) < 100_000


@pytest.mark.long
def test_large_figures_are_thinned() -> None:
    raw = {f"data_config.field_{i}": {"type": "double", "min": 0.0, "max": 1.0} for i in range(30)}
    many = [replace(point(i, float(i)), values=dict.fromkeys(raw, i / 10_000)) for i in range(10_000)]

    lines = parallel.draw(figures.parallel(many, LOSS, parameters(raw), most=10_000), "x")
    plots = slices.draw(figures.slices(many, LOSS, parameters(raw), most=10_000), "x")

    assert "1000 of 10,000 trials drawn" in lines
    assert "15 of 30 parameters; choose others by ?parameters=" in lines
    assert "500 of 10,000 trials drawn" in plots
    assert "24 of 30 parameters" in plots
    assert lines.count("<path") < 1100
    assert plots.count("<circle") < 12_100


def test_importances_have_percents_and_notes() -> None:
    words = [each for _, _, each in places(drawn_importance(40))]

    assert {"70\N{NO-BREAK SPACE}%", "30\N{NO-BREAK SPACE}%", "<\N{NO-BREAK SPACE}1\N{NO-BREAK SPACE}%"} <= {
        each.replace("&lt;", "<") for each in words
    }
    assert {"constant", "active in 20 of 40 trials"} <= set(words)


def test_front_has_stairs_for_two_objectives_only() -> None:
    trials = [(each, (each.value, 2.0, 3.0)) for each in points(9)]
    three = front.draw(figures.front(trials, (LOSS, MEMORY, replace(MEMORY, metric="z")), 0, 1, most=99), "x")

    assert 'class="record"' in drawn_front(9)
    assert 'class="record"' not in three
    assert "the front is that of all 3 objectives" in three


def test_text_is_cut_with_an_ellipsis_where_it_has_no_room() -> None:
    assert svg.fitted("learning_rate", 200) == "learning_rate"
    assert svg.fitted("learning_rate", 50) == "learni…"
    assert svg.fitted("data_config.batch_size", 80, from_end=True) == "….batch_size"
    assert svg.fitted("学習率学習率", 50) == "学習率…"


def test_both_themes_have_readable_text() -> None:
    """Contrast of at least 4.5 to 1, as WCAG 2.2 asks for."""
    light, _, dark = svg.STYLE.partition("@media (prefers-color-scheme:dark)")
    for theme in (light, dark):
        page = colour(theme, r"\.page\{fill:(#\w{6})")
        for kind in ("text", "muted", "bestlabel"):
            assert contrast(colour(theme, rf"(?:\.tyf|\.)\s?{kind}\{{fill:(#\w{{6}})"), page) >= 3 + 1.5 * (
                kind != "bestlabel"
            )


def colour(theme: str, pattern: str) -> str:
    found = re.search(pattern, theme)
    assert found is not None, pattern
    return found[1]


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def luminance(value: str) -> float:
    parts = [int(value[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
