"""Pages follow what happens: by a stream for each visible tab, without one by questions, and after interruptions."""

import os
import re
import signal
import time
from typing import Any

from playwright.sync_api import BrowserContext, Page, expect

from tests.systems.running_up import wait_until
from tests.web.site import FEEDS, Site

HIDE = """(hidden) => {
    Object.defineProperty(document, "hidden", {value: hidden, configurable: true});
    document.dispatchEvent(new Event("visibilitychange"));
}"""
# What is at once takes a second, on a busy machine some; what does not happen at once would take minutes.
MOST_SECONDS = 20
# What the page has said of its connection since then.
SAID = """() => {
    const label = document.getElementById("live-state");
    window.said = [label.textContent];
    new MutationObserver(() => said.push(label.textContent)).observe(label, {childList: true});
}"""
LIVE_OR_POLLS = re.compile("^(live|every 5 s)$")


def state(page: Page) -> Any:
    return expect(page.locator("#live-state"))


def row(page: Page, name: str) -> Any:
    return page.get_by_role("row").filter(has_text=name)


def answers(site: Site) -> bool:
    try:
        return site.running.get("/v1/jobs?page_size=1")[0] == 200
    except OSError:  # while it starts
        return False


def test_the_overview_moves_by_itself(page: Page, context: BrowserContext, site: Site):
    page.goto("/ui/")
    state(page).to_have_text("live")

    job_id = site.submit("moves-by-itself", steps=600)
    expect(row(page, "moves-by-itself")).to_contain_text("TRAINING")
    network = {"offline": False, "latency": 4000, "downloadThroughput": -1, "uploadThroughput": -1}
    context.new_cdp_session(page).send("Network.emulateNetworkConditions", network)  # changes come faster than answers
    site.ask("POST", f"/v1/jobs/{job_id}/cancel", {})

    expect(row(page, "moves-by-itself")).to_have_count(0)


def test_a_hidden_tab_has_no_stream_and_learns_later_what_it_missed(page: Page, site: Site):
    asked: list[str] = []
    page.goto("/ui/")
    state(page).to_have_text("live")
    page.on("request", lambda request: asked.append(request.url))

    page.evaluate(HIDE, True)
    job_id = site.submit("missed-by-hidden", steps=600)
    site.wait_for(job_id, "TRAINING", "QUEUED")
    page.wait_for_timeout(1500)
    while_hidden = [url for url in asked if "/ui/live" in url]
    page.evaluate(HIDE, False)

    expect(row(page, "missed-by-hidden")).to_have_count(1)
    assert while_hidden == []


def test_a_revoked_key_ends_the_stream_at_once(context: BrowserContext, site: Site):
    key = site.project("revoked-in-stream", "viewer")
    page = context.new_page()
    site.sign_in(page, key)
    page.goto("/ui/")
    state(page).to_have_text("live")
    rows = site.ask("GET", "/v1/keys?page_size=100")["keys"]

    site.ask("DELETE", f"/v1/keys/{next(each['key_id'] for each in rows if each['project'] == 'revoked-in-stream')}")
    revoked = time.monotonic()

    state(page).to_have_text("signed out")
    assert time.monotonic() - revoked < MOST_SECONDS
    expect(page.locator("#notices")).to_contain_text("This page is not updated")
    page.get_by_role("link", name="Sign in again").click()
    expect(page.locator("#notices")).to_contain_text("its key is no longer valid")


def test_eight_tabs_of_one_browser_work_side_by_side(page: Page, context: BrowserContext, site: Site):
    tabs = [page, *(context.new_page() for _ in range(7))]
    for tab in tabs:
        tab.goto("/ui/")
        state(tab).to_have_text(LIVE_OR_POLLS)  # before the next one asks how many have a stream

    began = time.monotonic()
    tabs[-1].goto("/ui/sessions")

    expect(tabs[-1].get_by_role("heading", level=1)).to_be_visible()
    assert time.monotonic() - began < MOST_SECONDS
    streaming = sum(tab.locator("#live-state").inner_text() == "live" for tab in tabs[:-1])
    assert 1 <= streaming <= 5  # three, and more where tabs answer late; of six connections one has to be free


def test_an_interrupted_page_says_so_and_goes_on(page: Page, context: BrowserContext, site: Site):
    page.goto("/ui/")
    state(page).to_have_text("live")

    context.set_offline(True)
    page.evaluate(HIDE, True)
    page.evaluate(HIDE, False)
    state(page).to_have_text("offline")
    context.set_offline(False)

    state(page).to_have_text("live")


def test_pages_go_on_after_a_restart_of_the_server(page: Page, site: Site, owned_pids: set[int]):
    page.goto("/ui/")
    state(page).to_have_text("live")
    page.evaluate(SAID)
    before = site.running.pid_of("api")

    os.kill(before, signal.SIGTERM)
    wait_until(lambda: site.running.pid_of("api") != before, 60)  # what has started it starts it again
    owned_pids.add(site.running.pid_of("api"))
    wait_until(lambda: answers(site), 120)
    site.submit("after-restart", steps=600)

    expect(row(page, "after-restart")).to_have_count(1)
    state(page).to_have_text("live")
    assert {"offline", "every 5 s"} & set(page.evaluate("said"))


def test_the_overview_has_no_violations(page: Page, site: Site, violations: Any):
    site.submit("for-axe", steps=600)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.goto("/ui/")
        state(page).to_have_text(LIVE_OR_POLLS)
        assert violations(page) == [], scheme
    page.set_viewport_size({"width": 320, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
    assert page.evaluate("document.getElementsByTagName('*').length") <= 2000


def test_a_part_that_is_replaced_keeps_the_focus(page: Page, site: Site):
    site.submit("keeps-focus", steps=600)
    for path, part in (("/ui/", "overview"), ("/ui/jobs?name=keeps-focus", "job-list")):
        page.goto(path)
        state(page).to_have_text(LIVE_OR_POLLS)
        page.evaluate(f"document.getElementById('{part}').dataset.old = 'true'")
        page.get_by_role("link", name="keeps-focus").first.focus()

        expect(page.locator(f"#{part}:not([data-old])")).to_have_count(1)

        expect(page.get_by_role("link", name="keeps-focus").first).to_be_focused()


def test_no_change_is_lost_behind_an_answer_that_leaves_the_part_as_it_is(page: Page, site: Site):
    job_id = site.submit("as-it-is", steps=600)
    site.ask("POST", f"/v1/jobs/{job_id}/cancel", {})
    site.wait_for(job_id, "CANCELLED")
    page.add_init_script(FEEDS)
    page.goto(f"/ui/jobs/{job_id}/events")
    state(page).to_have_text("live")

    for _ in range(2):
        with page.expect_response(f"**/ui/jobs/{job_id}/events?known=*") as asked:
            page.evaluate("(topic) => feed(topic)", f"job:{job_id}")
        assert asked.value.status == 204


def test_a_part_that_waits_for_its_answer_hears_of_many_changes_once(page: Page, site: Site):
    job_id = site.submit("hears-once", steps=600)
    page.clock.install()
    page.add_init_script(FEEDS)
    page.goto(f"/ui/jobs/{job_id}/events")
    state(page).to_have_text("live")
    page.evaluate("""() => {
        window.heard = 0;
        document.addEventListener("live", (event) => {
            heard += event.target.id === "events";
            event.stopImmediatePropagation(); // it asks for nothing, so that it is not busy again
        }, true);
        document.getElementById("events").classList.add("htmx-request");
    }""")

    for _ in range(4):
        page.evaluate("(topic) => feed(topic)", f"job:{job_id}")
        page.clock.run_for(3000)
    assert page.evaluate("heard") == 0
    page.evaluate("document.getElementById('events').classList.remove('htmx-request')")
    page.clock.run_for(1500)

    assert page.evaluate("heard") == 1


def test_a_part_of_another_parts_answer_is_replaced_only_after_a_click_in_it(page: Page, site: Site):
    job_id = site.submit("pressed-beside", steps=600)
    page.add_init_script(FEEDS)
    page.goto(f"/ui/jobs/{job_id}/access")
    for part in ("access", "sessions"):
        page.evaluate(f"document.getElementById('{part}').dataset.old = 'true'")
    page.get_by_role("heading", name="Sessions").hover()
    page.mouse.down()

    page.locator("#access").dispatch_event("live")
    expect(page.locator("#access:not([data-old])")).to_have_count(1)
    expect(page.locator("#sessions[data-old]")).to_have_count(1)
    page.mouse.up()

    expect(page.locator("#sessions:not([data-old])")).to_have_count(1)
