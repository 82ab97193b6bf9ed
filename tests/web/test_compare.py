"""Comparison in Chromium: curves over each other, groups with their mean, and which job is the best."""

import re

import pytest
from playwright.sync_api import Page, Route, expect

from tests.systems.running_up import wait_until
from tests.web.site import Site

_TRAINS = """
from trainyard import hooks

run = hooks.init()
for step in range(1, 51):
    run.log_metrics({"loss": FACTOR / step, "tokens": 100 * step}, step=step)
"""


@pytest.fixture(scope="module")
def runs(site: Site) -> list[str]:
    """Three jobs that have ended, two of which have a label in common."""
    made = [
        site.submit_script(f"compared-{i}", _TRAINS.replace("FACTOR", str(i)), labels={"rate": rate})
        for i, rate in ((1, "low"), (2, "low"), (3, "high"))
    ]
    for job in made:
        site.wait_for(job, "COMPLETED")
    return made


def url(runs: list[str], **more: str) -> str:
    return "/ui/compare?" + "&".join([*(f"job={job}" for job in runs), *(f"{k}={v}" for k, v in more.items())])


def drawn(page: Page, metric: str) -> bool:
    """Whether the curve has points that are not of one color."""
    return bool(
        page.locator(f".curve[data-metric='{metric}'] canvas").evaluate(
            "c => new Set(c.getContext('2d').getImageData(0, 0, c.width, c.height).data).size > 20"
        )
    )


def test_curves_are_drawn_and_the_best_is_marked(page: Page, runs: list[str]):
    page.goto(url(runs))
    page.locator(".curve[data-metric=loss]").scroll_into_view_if_needed()
    expect(page.locator(".curve[data-metric=loss] canvas")).to_be_visible()

    wait_until(lambda: drawn(page, "loss"), 60)  # a canvas is there before its first points
    best = page.get_by_role("region", name="Metrics of the jobs").get_by_role("row", name="loss")
    expect(best).to_contain_text("★ 0.02")


def test_the_cursor_tells_the_value_of_each_job(page: Page, runs: list[str]):
    page.goto(url(runs))
    plot = page.locator(".curve[data-metric=loss] .u-over")
    plot.scroll_into_view_if_needed()

    plot.hover()

    expect(page.locator(".curve[data-metric=loss] .curve-value")).to_contain_text("1. ")
    expect(page.locator(".curve[data-metric=loss] .curve-value")).to_contain_text("3. ")


@pytest.mark.parametrize(("by", "unit"), [("seconds", "Second"), ("tokens", "Token")])
def test_the_cursor_tells_where_it_is_in_the_unit_of_the_axis(page: Page, runs: list[str], by: str, unit: str):
    page.goto(url(runs, by=by))
    plot = page.locator(".curve[data-metric=loss] .u-over")
    plot.scroll_into_view_if_needed()

    plot.hover()

    expect(page.locator(".curve[data-metric=loss] .curve-value")).to_have_text(re.compile(rf"^{unit} [\d.,]+: 1\. "))


def test_groups_have_a_mean(page: Page, runs: list[str]):
    page.goto(url(runs))
    page.get_by_label("Group by label").select_option("rate")
    page.get_by_role("button", name="Apply").click()

    expect(page.get_by_role("region", name="Means of the groups").get_by_role("row", name="loss")).to_contain_text(
        "0.03 (0.02 to 0.04)"
    )
    page.locator(".curve[data-metric=loss]").scroll_into_view_if_needed()
    page.locator(".curve[data-metric=loss] .u-over").hover()
    expect(page.locator(".curve[data-metric=loss] .curve-value")).to_contain_text("group 2:")
    page.get_by_label("Mean and range of each group").uncheck()
    page.locator(".curve[data-metric=loss] .u-over").hover(position={"x": 30, "y": 30})
    expect(page.locator(".curve[data-metric=loss] .curve-value")).to_contain_text("3. ")


def test_what_changes_while_curves_are_on_their_way_is_asked_for_after_them(page: Page, runs: list[str]):
    page.goto(url(runs))
    page.locator(".curve[data-metric=loss]").scroll_into_view_if_needed()
    wait_until(lambda: drawn(page, "loss"), 20)
    page.wait_for_load_state("networkidle")
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route(re.compile("metric="), hold)

    with page.expect_request(re.compile("metric=")):
        page.locator("#compare-charts").dispatch_event("live")
    page.locator("#compare-charts").dispatch_event("live")
    with page.expect_request(re.compile("metric=")):
        held.pop().continue_()
