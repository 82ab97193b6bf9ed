"""How a person gets from the dashboard, or from a port's address alone, to the page that a job serves."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.systems.running_up import wait_until
from tests.web.presses import Presses
from tests.web.site import PATIENCE_MS, Site
from tests.web.test_pages import PICTURES, SCHEMES

PORT = 7861
WIDTHS = (1366, 390)
SOURCE = f"""
import http.server, os
os.makedirs("site"); os.chdir("site")
open("index.html", "w").write("<!doctype html><title>Page of a job</title><p>Hello from a job.")
http.server.ThreadingHTTPServer(("127.0.0.1", {PORT}), http.server.SimpleHTTPRequestHandler).serve_forever()
"""


@pytest.fixture
def person(browser: Browser, site: Site, presses: Presses) -> Iterator[BrowserContext]:
    """A browser that may also visit the host of ports."""
    opened = browser.new_context(base_url=site.url)
    presses.watch(opened)
    opened.set_default_timeout(PATIENCE_MS)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def job_id(site: Site) -> Iterator[str]:
    made = site.submit_script("serves-a-page", SOURCE, interactive_config={"ports": [{"name": "web", "port": PORT}]})
    site.wait_for(made, "TRAINING")
    yield made
    site.ask("POST", f"/v1/jobs/{made}/cancel", {})


def test_the_open_button_leads_to_the_page_of_the_job(site: Site, person: BrowserContext, job_id: str) -> None:
    page = person.new_page()
    site.sign_in(page, site.key)

    page.goto(f"/ui/jobs/{job_id}/access")
    with person.expect_page() as opened:
        page.get_by_role("button", name="Open the port web in a new tab").click()
    of_job = opened.value
    of_job.wait_for_url(re.compile(r"^http://jobs\.localhost:\d+/[^?]*$"))  # and not that with the token

    wait_until(lambda: _shows_the_page(of_job), 90)
    assert re.fullmatch(rf"http://jobs\.localhost:\d+/jobs/{job_id}/ports/web/", of_job.url)
    assert of_job.evaluate("document.referrer") == ""
    assert of_job.evaluate("window.opener") is None


def test_a_browser_without_a_token_is_led_to_the_dashboard(site: Site, person: BrowserContext, job_id: str) -> None:
    (port,) = site.ask("GET", f"/v1/jobs/{job_id}/ports")["ports"]
    page = person.new_page()
    site.sign_in(page, site.key)

    answer = page.goto(port["url"])
    assert answer is not None
    assert answer.status == 401
    expect(page.get_by_role("heading", name="This port of a job needs a token")).to_be_visible()
    expect(page.get_by_text(f"trainyard open {job_id} --port web")).to_be_visible()
    page.get_by_role("link", name="Open it from the dashboard").click()

    expect(page.get_by_role("button", name="Open the port web in a new tab")).to_be_visible()
    assert page.url == f"{site.url}/ui/jobs/{job_id}/access"


def test_the_tab_is_usable_by_everyone(
    site: Site, page: Page, job_id: str, violations: Callable[[Page], list[str]]
) -> None:
    command = ["python3", "-c", "print('a long command, of which the beginning must do')", "--and", "more" * 10]
    site.ask("POST", f"/v1/jobs/{job_id}/sessions", {"kind": "exec", "command": command})
    page.goto(f"/ui/jobs/{job_id}/access")

    expect(page.get_by_role("region", name="Sessions, the newest first")).to_be_visible()
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        assert violations(page) == []
        for width in WIDTHS if PICTURES else ():
            page.set_viewport_size({"width": width, "height": 900})
            (Path(PICTURES) / f"access-{scheme}-{width}.png").write_bytes(page.screenshot(full_page=True))


@pytest.mark.skipif(not PICTURES, reason="pictures are for people: TESTS_SCREENSHOTS names a directory for them")
def test_pictures_of_the_page_without_a_token(site: Site, person: BrowserContext, job_id: str) -> None:
    (port,) = site.ask("GET", f"/v1/jobs/{job_id}/ports")["ports"]
    page = person.new_page()
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            page.goto(port["url"])
            (Path(PICTURES) / f"no-token-{scheme}-{width}.png").write_bytes(page.screenshot())


def _shows_the_page(of_job: Page) -> bool:
    """The job's server may have to start: until then the gateway says so."""
    if of_job.title() == "Page of a job":
        return True
    of_job.wait_for_timeout(200)
    of_job.reload()
    return False
