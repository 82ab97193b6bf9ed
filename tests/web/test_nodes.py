"""Nodes and shares in a browser: what an administrator does there, by mouse and by keyboard."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.web.site import Site

NODE = "a100-1"


@pytest.fixture(autouse=True)
def enabled(site: Site) -> Iterator[None]:
    yield
    site.ask("POST", f"/v1/nodes/{NODE}/enable", {})


def test_the_squares_follow_what_happens(page: Page, site: Site):
    page.goto("/ui/nodes")
    expect(page.locator("#live-state")).not_to_be_empty()

    site.ask("POST", f"/v1/nodes/{NODE}/drain", {})

    expect(page.locator(".fleet li", has_text=NODE)).to_contain_text("drain")
    page.get_by_role("link", name="Utilization").click()
    expect(page.locator(".fleet li", has_text=NODE)).to_contain_text("–")  # simulated devices have no samples


def test_a_node_is_drained_and_enabled(page: Page):
    page.goto(f"/ui/nodes/{NODE}")

    page.get_by_role("button", name="Drain", exact=True).click()
    expect(page.get_by_text(f"{NODE} gets no new jobs.")).to_be_visible()
    page.get_by_role("button", name="Enable").click()

    expect(page.get_by_text(f"{NODE} accepts jobs.")).to_be_visible()


def test_emptying_a_node_asks_before_by_keyboard(page: Page, site: Site):
    job_id = site.submit("sent-back", resource_config={"gpu_count": 1, "gpu_type": "a100"})
    site.wait_for(job_id, "TRAINING")
    page.goto(f"/ui/nodes/{NODE}")
    button = page.get_by_role("button", name="Drain and requeue jobs")

    button.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog", name=f"Empty {NODE}?")).to_be_visible()
    page.keyboard.press("Escape")
    assert site.ask("GET", f"/v1/nodes/{NODE}")["status"] == "ready"
    button.focus()
    page.keyboard.press("Enter")
    page.get_by_role("dialog").get_by_role("button", name="Drain and requeue jobs").click()

    expect(page.locator("#notices")).to_contain_text("return")
    site.wait_for(job_id, "QUEUED", "PAUSED", seconds=90)


def test_a_node_is_labelled_and_says_why_a_job_does_not_start(page: Page, site: Site):
    job_id = site.submit("of-another-kind", resource_config={"gpu_count": 1, "gpu_type": "h100"})
    page.goto(f"/ui/nodes/{NODE}")

    page.get_by_label("Labels set here").fill("rack-7 fast")
    page.get_by_role("button", name="Save labels").click()
    expect(page.get_by_text(f"The labels of {NODE} are set.")).to_be_visible()
    page.get_by_label("Job id").fill(job_id)
    page.get_by_role("button", name="Explain").click()

    expect(page.get_by_role("region", name="What keeps the job away")).to_contain_text("has no h100")


def test_a_quota_is_set_and_a_wrong_one_refused(page: Page, site: Site):
    site.project("of-quotas")
    page.goto("/ui/shares")
    page.get_by_role("link", name="of-quotas").first.click()

    page.get_by_label("Limit").first.fill("3")
    page.get_by_role("button", name="Save the quota").click()
    expect(page.get_by_text("The quota of of-quotas is set.")).to_be_visible()
    page.locator("form:has(fieldset)").evaluate("(form) => (form.noValidate = true)")
    page.get_by_label("Limit").first.fill("-3")
    page.get_by_role("button", name="Save the quota").click()

    expect(page.get_by_role("alert")).to_contain_text("gpus_limit")
    assert site.ask("GET", "/v1/projects/of-quotas")["quota"]["gpus"]["limit"] == 3
