"""Every page in Chromium, light and dark, wide and narrow: without errors, accessible, small, and as text alone.

`TESTS_SCREENSHOTS=DIR make test-web ARGS="-k pictures"` leaves a picture of each in DIR.
"""

import os
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import BrowserContext, Page, Response

from tests.web.content import HOSTILE, Content
from tests.web.site import Site, wait_for

PICTURES = os.environ.get("TESTS_SCREENSHOTS", "")
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
MOST_NODES, MOST_REQUESTS, MOST_BYTES = 2_000, 8, 80_000
# Links to other sites, and what is no page.
LOADED = "document.readyState === 'complete' && !document.querySelector('.htmx-request')"


def opened(page: Page, path: str) -> Response:
    answer = page.goto(path)
    assert answer is not None
    wait_for(page, LOADED)
    return answer


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


def test_every_page_answers_is_small_fits_a_narrow_screen_and_has_no_markup_of_jobs(page: Page, content: Content):
    """One visit of each page answers all of these."""
    page.set_viewport_size({"width": 320, "height": 700})
    statuses, large, wide = {}, {}, {}
    shown = 0
    for name, path in content.paths.items():
        statuses[name] = opened(page, path).status
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
    assert shown >= 4, "pages show the text itself"


@pytest.mark.parametrize("name", ["overview", "jobs", "job-completed", "nodes", "submit"])
def test_a_first_visit_takes_few_requests_and_bytes(context: BrowserContext, site: Site, content: Content, name: str):
    page = context.new_page()
    site.sign_in(page, site.key)
    sizes: dict[str, int] = {}

    fresh = context.new_page()  # the cache is of the context: ask the sizes of what is served
    session = context.new_cdp_session(fresh)
    session.send("Network.enable")
    session.send("Network.setCacheDisabled", {"cacheDisabled": True})
    urls: dict[str, str] = {}
    session.on("Network.requestWillBeSent", lambda event: urls.update({event["requestId"]: event["request"]["url"]}))
    session.on(
        "Network.loadingFinished",
        lambda event: sizes.update({urls[event["requestId"]]: int(event["encodedDataLength"])}),
    )
    opened(fresh, content.paths[name])
    fresh.wait_for_timeout(500)
    of_scripts = {url: size for url, size in sizes.items() if "/ui/live" not in url}

    assert sum(of_scripts.values()) <= MOST_BYTES, sizes
    assert len(of_scripts) <= MOST_REQUESTS, sizes


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
