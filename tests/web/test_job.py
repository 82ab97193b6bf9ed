"""A job's page in a browser: every action, and that it follows the job while it is used."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.web.site import Site

STATE = "#job-head h1 .state"
# It can save and never asks whether it shall, so that a pause waits.
BUSY = """
import time
from trainyard import hooks
hooks.init(can_checkpoint=True).progress(1, 100)
while True:
    time.sleep(0.1)
"""


NAMES = ("acted-on", "kept", "moves", "asked", "again", "changed")


@pytest.fixture(scope="module")
def jobs(site: Site) -> Iterator[dict[str, str]]:
    """A job for each test that acts on one: they start side by side, and no test waits for its own."""
    made = {name: site.submit(name, steps=3600) for name in NAMES}
    yield made
    site.cancel(f"/v1/jobs/{job_id}" for job_id in made.values())


def open_job(page: Page, site: Site, job_id: str) -> None:
    """Its page, once its script has begun: before that it has not said that it can save."""
    site.wait_until_it_counts(job_id)
    page.goto(f"/ui/jobs/{job_id}")


def press(page: Page, name: str) -> None:
    page.get_by_role("group", name="Actions").get_by_role("button", name=name, exact=True).click()


def notice(page: Page, text: str) -> None:
    expect(page.locator("#notices")).to_contain_text(text)


def test_a_job_is_saved_paused_resumed_and_cancelled_without_leaving_its_page(
    page: Page, site: Site, jobs: dict[str, str]
):
    job_id = jobs["acted-on"]
    open_job(page, site, job_id)

    press(page, "Save now")
    notice(page, "The job saves a checkpoint")
    press(page, "Pause")
    notice(page, "pauses")
    expect(page.locator(STATE)).to_contain_text("PAUSED")
    expect(page.get_by_role("button", name="Resume", exact=True)).to_be_visible()
    press(page, "Resume")
    notice(page, "waits for devices")
    expect(page.locator(STATE)).to_contain_text("TRAINING")
    press(page, "Cancel")
    page.get_by_role("dialog").get_by_role("button", name="Cancel the job", exact=True).click()
    notice(page, "The job stops now.")
    expect(page.locator(STATE)).to_contain_text("CANCELLED")
    expect(page.get_by_role("button", name="Retry", exact=True)).to_be_visible()

    assert site.status(job_id) == "CANCELLED"


def test_a_pause_is_taken_back_while_the_job_has_not_saved(page: Page, site: Site):
    job_id = site.submit_script("busy", BUSY)
    site.wait_until_it_counts(job_id)
    page.goto(f"/ui/jobs/{job_id}")
    press(page, "Pause")
    notice(page, "pauses")

    press(page, "Take the pause back")

    notice(page, "The pause is taken back")
    expect(page.get_by_role("button", name="Pause", exact=True)).to_be_visible()
    job = site.ask("GET", f"/v1/jobs/{job_id}")
    assert (job["status"], job["requested"]) == ("TRAINING", None)


def test_labels_of_an_ended_job_are_changed(page: Page, site: Site):
    job_id = site.submit("labelled")
    site.ask("POST", f"/v1/jobs/{job_id}/cancel")
    site.wait_for(job_id, "CANCELLED")
    page.goto(f"/ui/jobs/{job_id}")
    page.get_by_role("link", name="Change labels").click()
    expect(page.get_by_label("Priority")).to_have_count(0)
    page.get_by_label("Labels").fill("verdict=discarded")
    page.get_by_role("button", name="Change").click()

    notice(page, "The job is changed")
    assert site.ask("GET", f"/v1/jobs/{job_id}")["labels"] == {"verdict": "discarded"}


def test_a_question_before_cancelling_can_be_answered_with_no_and_by_keyboard(
    page: Page, site: Site, jobs: dict[str, str]
):
    job_id = jobs["kept"]
    open_job(page, site, job_id)
    button = page.get_by_role("group", name="Actions").get_by_role("button", name="Cancel", exact=True)

    button.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_contain_text("Cancel this job?")
    page.keyboard.press("Escape")

    expect(page.get_by_role("dialog")).not_to_be_visible()
    expect(button).to_be_focused()
    assert site.status(job_id) in ("TRAINING", "QUEUED")


def test_progress_moves_while_a_button_keeps_the_focus(page: Page, site: Site, jobs: dict[str, str]):
    open_job(page, site, jobs["moves"])
    head = page.locator("#job-head")
    expect(head).to_contain_text(" of 3,600")
    before = head.inner_text()
    button = page.get_by_role("button", name="Pause", exact=True)
    button.focus()

    expect(head).not_to_have_text(before)

    expect(button).to_be_focused()


def test_an_open_question_is_answered_after_the_job_has_changed(page: Page, site: Site, jobs: dict[str, str]):
    job_id = jobs["asked"]
    open_job(page, site, job_id)
    press(page, "Cancel")

    site.ask("POST", f"/v1/jobs/{job_id}/pause")
    site.wait_for(job_id, "PAUSED")
    page.get_by_role("dialog").get_by_role("button", name="Cancel the job", exact=True).click()

    expect(page.locator(STATE)).to_contain_text("CANCELLED")


def test_a_retry_with_changes_is_a_new_job(page: Page, site: Site, jobs: dict[str, str]):
    job_id = jobs["again"]
    open_job(page, site, job_id)
    site.ask("POST", f"/v1/jobs/{job_id}/cancel")
    expect(page.locator(STATE)).to_contain_text("CANCELLED")

    page.get_by_role("link", name="Retry with changes").click()
    page.get_by_label("Devices on each node").fill("2")
    page.get_by_label("Start from").select_option("beginning")
    page.get_by_role("button", name="Retry", exact=True).click()
    notice(page, "This new job does the work again, from the beginning.")

    child = page.url.rpartition("/")[2]
    found = site.ask("GET", f"/v1/jobs/{child}")
    assert (found["parent_job_id"], found["resource_config"]["gpu_count"]) == (job_id, 2)
    page.get_by_role("navigation", name="Job").get_by_role("link", name="Document").click()
    expect(page.get_by_role("row", name="resource_config.gpu_count")).to_contain_text("2")


def test_priority_and_labels_are_changed_and_a_broken_rule_is_reported_beside_the_form(
    page: Page, site: Site, jobs: dict[str, str]
):
    job_id = jobs["changed"]
    open_job(page, site, job_id)

    page.get_by_role("link", name="Change priority or labels").click()
    page.get_by_label("Labels").fill("nonsense")
    page.get_by_role("button", name="Change", exact=True).click()
    notice(page, "write key=value")
    page.get_by_label("Labels").fill("team=nlp")
    page.get_by_role("spinbutton", name="Priority").fill("7")
    page.get_by_role("button", name="Change", exact=True).click()
    notice(page, "The job is changed.")

    found = site.ask("GET", f"/v1/jobs/{job_id}")
    assert (found["labels"], found["scheduling_config"]["priority"]) == ({"team": "nlp"}, 7)


def test_a_viewer_sees_a_running_job_move_and_no_notice(context: BrowserContext, site: Site):
    job_id = site.submit("watched", key=site.project("watched"))
    page = context.new_page()
    site.sign_in(page, str(site.ask("POST", "/v1/keys", {"role": "viewer", "project": "watched"})["key"]))
    page.goto(f"/ui/jobs/{job_id}")
    expect(page.locator(STATE)).to_contain_text("TRAINING", timeout=180_000)
    step = page.locator("#job-head p", has_text=" of 600")
    before = step.inner_text()

    expect(step).not_to_have_text(before)

    expect(page.locator("#notices .notice")).to_have_count(0)


def test_the_facts_and_the_loss_follow_a_job_from_its_submission(page: Page, site: Site):
    source = (
        "import time\nfrom trainyard import hooks\nrun = hooks.init()\n"
        "for step in range(1, 600):\n    run.log_metrics({'loss': 3 / step}, step=step)\n    time.sleep(0.5)\n"
    )
    job_id = site.submit_script("followed", source)
    page.goto(f"/ui/jobs/{job_id}")
    facts = page.locator("#facts-of-its-run")

    expect(facts.locator("dt:text-is('Started') + dd")).not_to_have_text("–", timeout=180_000)
    expect(facts.locator("dt:text-is('Ran') + dd")).to_contain_text("s")
    expect(facts.locator("dt:text-is('Attempts') + dd")).to_have_text("1")
    expect(page.get_by_role("img", name="loss:")).to_be_visible()

    site.ask("POST", f"/v1/jobs/{job_id}/cancel")
    expect(facts.locator("dt:text-is('Ended')")).to_be_visible()


def test_text_is_copied_where_the_browser_gives_no_clipboard(page: Page, site: Site, jobs: dict[str, str]):
    page.add_init_script("Object.defineProperty(Navigator.prototype, 'clipboard', {value: undefined})")
    page.goto(f"/ui/jobs/{jobs['kept']}/access")
    button = page.get_by_role("button", name="Copy").first
    text = button.get_attribute("data-copy") or ""

    button.click()

    expect(page.get_by_role("button", name="Copied")).to_be_focused()
    page.goto("/ui/jobs")
    page.get_by_label("Name begins with").focus()
    page.keyboard.press("Control+v")
    expect(page.get_by_label("Name begins with")).to_have_value(text)
