"""Every page in Chromium, light and dark, wide and narrow: without errors, accessible, small, and as text alone.

`TESTS_SCREENSHOTS=DIR make test-web ARGS="-k pictures"` leaves a picture of each in DIR.
"""

import os
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Page, Response, expect

from app.database.engine import Database
from app.http.context import dialect_of
from app.http.operation import operation_of
from app.web.dialect import WEB
from tests.systems.apps import Api
from tests.systems.engines import engine_on
from tests.web.content import HOSTILE, Content
from tests.web.loads import forget_what_was_loaded, loads
from tests.web.site import wait_for

PICTURES = os.environ.get("TESTS_SCREENSHOTS", "")
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
MOST_NODES, MOST_REQUESTS, MOST_BYTES = 2_000, 8, 80_000
# Parts of pages, which scripts ask for.
PARTS = {
    "/ui/overview/part",
    "/ui/jobs/<job_id>/head",
    "/ui/submit/hyperparameters",
    "/ui/submit/roles",
    "/ui/sweeps/new/constraints",
    "/ui/sweeps/new/evaluations",
    "/ui/sweeps/new/parameters",
    "/ui/evaluations/new/benchmarks",
}
# Only where people sign in by an identity provider: test_oidc.py.
OF_PROVIDERS = {"/ui/login/oidc", "/ui/login/oidc/callback", "/ui/signed-out"}
LOADED = "document.readyState === 'complete' && !document.querySelector('.htmx-request')"


def opened(page: Page, path: str) -> Response:
    answer = page.goto(path)
    assert answer is not None
    wait_for(page, LOADED)
    return answer


def test_every_page_is_among_those_that_are_visited(content: Content, sqlite_url: str, tmp_path: Path):
    bound = Database().bind(engine_on(sqlite_url))
    api = Api(bound, tmp_path, TRAINYARD_WEB_ENABLED="true")
    routes, views = api.app.url_map, api.app.view_functions
    pages = {
        rule.rule
        for rule in routes.iter_rules()
        if dialect_of(api.app, rule.rule) is WEB
        and "GET" in (rule.methods or ())
        and operation_of(views[rule.endpoint]).media == "html"
    }
    found = routes.bind("localhost")
    visited = {found.match(path.partition("?")[0], return_rule=True)[0].rule for path in content.paths.values()}
    api.close()
    bound.close()

    assert sorted(pages - visited) == sorted(PARTS | OF_PROVIDERS)


def test_every_page_is_accessible_in_both_schemes(page: Page, content: Content, violations: Any):
    found: dict[str, list[str]] = {}
    for name, path in content.paths.items():
        opened(page, path)
        for scheme in SCHEMES:
            page.emulate_media(color_scheme=scheme)
            # The style sheet's colors are all that differs between the schemes.
            if lines := violations(page, colors_alone=scheme != SCHEMES[0]):
                found[f"{name} {scheme}"] = lines

    assert found == {}


def test_an_open_question_is_accessible_and_fits_a_narrow_screen(page: Page, content: Content, violations: Any):
    opened(page, content.paths["job-running"])
    page.get_by_role("group", name="Actions").get_by_role("button", name="Cancel", exact=True).click()
    expect(page.get_by_role("dialog")).to_be_visible()

    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        assert violations(page) == [], scheme
    page.set_viewport_size({"width": 320, "height": 700})
    box = page.get_by_role("dialog").bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 320


def test_every_page_answers_is_small_fits_a_narrow_screen_and_has_no_markup_of_jobs(page: Page, content: Content):
    """One visit of each page answers all of these."""
    page.set_viewport_size({"width": 320, "height": 700})
    statuses, large, wide, heavy = {}, {}, {}, {}
    shown = 0
    forget_what_was_loaded(page)
    for name, path in content.paths.items():
        statuses[name] = opened(page, path).status
        sizes = loads(page)
        if len(sizes) > MOST_REQUESTS or sum(sizes.values()) > MOST_BYTES:
            heavy[name] = sizes
        if (nodes := page.evaluate("document.querySelectorAll('*').length")) > MOST_NODES:
            large[name] = nodes
        if (width := page.evaluate("document.documentElement.scrollWidth")) > 320:
            wide[name] = width
        assert page.title() != "owned", path
        assert page.locator("img[src=x]").count() == 0, path
        shown += HOSTILE[:20] in page.locator("body").inner_text()

    assert statuses == {name: 404 if name == "missing" else 200 for name in content.paths}
    assert large == {}
    assert wide == {}
    assert heavy == {}, "the budget of a first visit"
    assert shown >= 4, "pages show the text itself"


@pytest.mark.skipif(not PICTURES, reason="pictures are for people: TESTS_SCREENSHOTS names a directory for them")
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", [1366, 390])
def test_pictures_of_every_page(page: Page, content: Content, scheme: Any, width: int):
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 900})
    for name, path in content.paths.items():
        opened(page, path)
        page.wait_for_timeout(400)  # curves are drawn when they come into sight
        page.screenshot(path=Path(PICTURES) / f"{name}-{scheme}-{width}.png", full_page=True)


@pytest.mark.parametrize("width", [390, 1366])
def test_cells_of_tables_do_not_break_words(page: Page, content: Content, width: int):
    page.set_viewport_size({"width": width, "height": 900})
    narrow: dict[str, list[str]] = {}
    for name in ("audit", "sign-ins", "keys", "sessions", "projects", "jobs", "overview"):
        opened(page, content.paths[name])
        # A cell of one word stands in one line.
        found = page.evaluate("""() => [...document.querySelectorAll("td")].filter((cell) => {
            const text = cell.innerText.trim(), style = getComputedStyle(cell);
            if (!text || cell.children.length || /[\\s-]/.test(text) || text.length > 24) return false;
            const room = cell.clientHeight - parseFloat(style.paddingTop) - parseFloat(style.paddingBottom);
            const range = document.createRange();
            range.selectNodeContents(cell);
            return room && range.getClientRects().length > 1;
        }).map((cell) => cell.innerText)""")
        if found:
            narrow[name] = found

    assert narrow == {}
