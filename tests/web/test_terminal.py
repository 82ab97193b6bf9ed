"""The terminal in the page: a real shell in a running job, typed into by a person in Chromium."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.web.site import PATIENCE_MS, Site
from tests.web.test_pages import PICTURES, SCHEMES

SOURCE = """
import os, signal
print("role", os.environ.get("TRAINYARD_ROLE", "none"), flush=True)
signal.pause()
"""
WIDTHS = (1366, 390)
OPEN = "Open a terminal here"


@pytest.fixture(scope="module")
def job_id(site: Site) -> Iterator[str]:
    made = site.submit_script("is-typed-into", SOURCE)
    site.wait_for(made, "TRAINING")
    yield made
    site.ask("POST", f"/v1/jobs/{made}/cancel", {})


def shown(page: Page) -> str:
    """The text of the terminal, as screen readers have it."""
    return page.locator("#terminal .xterm-accessibility").inner_text().replace("\xa0", " ")


def wait_shown(page: Page, pattern: str) -> re.Match[str]:
    for _ in range(PATIENCE_MS // 100):
        if found := re.search(pattern, shown(page)):
            return found
        page.wait_for_timeout(100)
    raise AssertionError(f"{pattern} is not among: {shown(page)}")


def open_terminal(page: Page, job_id: str) -> None:
    page.goto(f"/ui/jobs/{job_id}/access")
    page.get_by_role("button", name=OPEN).click()
    expect(page.locator("#terminal-state")).to_have_text("The shell is open.")
    wait_shown(page, r"[$#] ?\s*$|[$#] ")


def run(page: Page, command: str) -> None:
    page.keyboard.type(command)
    page.keyboard.press("Enter")


def test_a_command_is_typed_and_answers(
    site: Site, page: Page, job_id: str, violations: Callable[[Page], list[str]]
) -> None:
    open_terminal(page, job_id)

    run(page, "printf '\\033[31mred\\033[38;2;10;200;90mgreen\\033[0m %s\\n' $((6 * 7))")
    wait_shown(page, "redgreen 42")

    styled = page.locator("#terminal .xterm-rows span", has_text="green").last
    assert styled.evaluate("span => getComputedStyle(span).color") == "rgb(10, 200, 90)"
    assert (
        page.locator("#terminal .xterm-rows").evaluate("rows => getComputedStyle(rows).color") == "rgb(230, 235, 242)"
    )
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        assert violations(page) == []
        for width in WIDTHS if PICTURES else ():
            page.set_viewport_size({"width": width, "height": 900})
            page.wait_for_timeout(300)
            (Path(PICTURES) / f"terminal-{scheme}-{width}.png").write_bytes(page.screenshot(full_page=True))


def test_ctrl_c_paste_and_size_reach_the_shell(context: BrowserContext, page: Page, site: Site, job_id: str) -> None:
    context.grant_permissions(["clipboard-read", "clipboard-write"], origin=site.url)
    open_terminal(page, job_id)

    run(page, "sleep 600; echo over-$((1 + 1))")
    page.wait_for_timeout(300)
    page.keyboard.press("Control+c")
    run(page, "echo interrupted-$?")
    assert wait_shown(page, r"interrupted-(\d+)\s")[1] == "130"

    page.evaluate("navigator.clipboard.writeText('echo pasted-$((20 + 3))')")
    page.keyboard.press("Control+v")
    wait_shown(page, r"echo pasted-\$")
    page.keyboard.press("Enter")
    wait_shown(page, "pasted-23")

    run(page, "stty size | sed 's/^/first /'")
    before = int(wait_shown(page, r"first \d+ (\d+)")[1])
    page.set_viewport_size({"width": 700, "height": 900})
    run(page, f"until [ $(stty size | cut -d' ' -f2) -lt {before} ]; do sleep 0.1; done; echo narrower-$((30 + 5))")
    wait_shown(page, "narrower-35")


def test_it_ends_clearly_and_opens_again(page: Page, site: Site, job_id: str) -> None:
    open_terminal(page, job_id)
    run(page, "exit 7")

    expect(page.locator("#terminal-state")).to_have_text("The shell has ended with exit code 7.")
    page.get_by_role("button", name=OPEN).click()
    expect(page.locator("#terminal-state")).to_have_text("The shell is open.")
    page.keyboard.press("Control+F6")
    expect(page.get_by_role("button", name="End the session")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#terminal-state")).to_contain_text("The session has ended")

    page.reload()
    ended = page.locator("#sessions tbody tr")
    expect(ended.first).to_contain_text("ended")
    assert site.ask("GET", f"/v1/jobs/{job_id}/sessions")["sessions"][0]["status"] == "ended"


def test_a_job_that_ends_says_so_in_the_open_terminal(page: Page, site: Site) -> None:
    made = site.submit_script("ends-under-a-terminal", SOURCE)
    site.wait_for(made, "TRAINING")
    open_terminal(page, made)

    site.ask("POST", f"/v1/jobs/{made}/cancel", {})

    expect(page.locator("#terminal-state")).to_contain_text("The session has ended: ")
    expect(page.get_by_text("A shell opens only while the job runs.")).to_be_visible()


def test_a_refusal_stands_beside_the_button(page: Page, site: Site) -> None:
    key = site.project("closed-to-shells")
    made = site.submit("refuses-a-terminal", key=key)
    site.wait_for(made, "TRAINING")
    site.ask("PATCH", "/v1/projects/closed-to-shells", {"sessions": "off"})
    page.goto(f"/ui/jobs/{made}/access")

    page.get_by_role("button", name=OPEN).click()

    expect(page.locator("#terminal-state")).to_contain_text("sessions are switched off in the project")
    expect(page.locator("#terminal-box")).to_be_hidden()


def test_a_flood_is_left_out_and_ctrl_c_stops_it(page: Page, job_id: str) -> None:
    open_terminal(page, job_id)
    run(page, "yes abcdefghijklmnopqrstuvwxyz")
    page.wait_for_timeout(2000)

    page.keyboard.press("Control+c")
    run(page, "echo calm-$((40 + 4))")

    wait_shown(page, "calm-44")
