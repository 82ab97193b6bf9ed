"""Jobs with roles in the browser: their instances, the log of one role, a shell in an instance, and the form."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect

from tests.web.site import Site, wait_for
from tests.web.test_pages import PICTURES, SCHEMES
from tests.web.test_terminal import OPEN, SOURCE, WIDTHS, run, wait_shown


def role(name: str, **fields: Any) -> dict[str, Any]:
    return {"role": name, "resource_config": {"gpu_count": 1}, **fields}


def test_roles_are_shown_filter_the_log_and_are_chosen_for_the_shell(
    page: Page, site: Site, violations: Callable[[Page], list[str]]
) -> None:
    tasks = [role("trainer"), role("rollout", count=2)]
    made = site.submit_script("has-roles-in-the-page", SOURCE, resource_config={}, tasks=tasks)
    site.wait_for(made, "TRAINING")
    page.goto(f"/ui/jobs/{made}")
    rows = page.get_by_role("region", name="Instances of the roles").locator("tbody tr")
    expect(rows).to_have_count(3)
    expect(rows.nth(2)).to_contain_text("rollout")
    assert violations(page) == []
    picture(page, "roles")

    page.get_by_role("link", name="Log of the role rollout, at its instance 1").click()
    wait_for(page, "document.querySelectorAll('#log-rows .log-row').length >= 2")
    expect(page.locator("#log-rows")).to_contain_text("role rollout")
    expect(page.locator("#log-rows")).not_to_contain_text("role trainer")
    assert violations(page) == []
    picture(page, "roles-log")
    page.get_by_label("Role").select_option("trainer")
    expect(page.locator("#log-rows")).to_contain_text("role trainer")
    expect(page.locator("#log-rows")).not_to_contain_text("role rollout")

    page.goto(f"/ui/jobs/{made}/access")
    page.get_by_label("Beside").select_option("rollout 1")
    page.get_by_role("button", name=OPEN).click()
    expect(page.locator("#terminal-state")).to_have_text("The shell is open.")
    run(page, "echo at-$TRAINYARD_ROLE-$TRAINYARD_TASK_INDEX")
    wait_shown(page, "at-rollout-1")


def test_the_form_keeps_shows_and_changes_the_roles_of_a_copy(
    page: Page, site: Site, violations: Callable[[Page], list[str]]
) -> None:
    program = {"custom_command": ["python3", "-c", "print('a, b')"], "environment": {"SIZE": "3"}}
    tasks = [role("trainer"), role("rollout", count=2, training_config=program, sidecar=True)]
    made = site.submit_script("is-copied-with-roles", SOURCE, resource_config={}, tasks=tasks)
    site.ask("POST", f"/v1/jobs/{made}/cancel", {})  # a copy needs its document alone
    site.wait_until_others_end()
    page.goto(f"/ui/submit?clone={made}")
    roles = page.locator("#roles")
    expect(roles.get_by_label("Role (required)")).to_have_count(2)
    expect(page.locator("#field-tasks-1-sidecar")).to_have_value("true")
    expect(page.get_by_role("heading", name="It can start now")).to_be_visible()
    assert violations(page) == []
    picture(page, "roles-form")

    page.locator("#field-tasks-1-count").fill("3")
    page.get_by_role("button", name="Add role").click()
    page.locator("#field-tasks-2-role").fill("reward")
    page.get_by_role("button", name="Remove Role 1").click()
    expect(roles.get_by_label("Role (required)")).to_have_count(2)
    written = json.loads(page.locator("#document").input_value())["tasks"]
    assert [each["role"] for each in written] == ["rollout", "reward"]
    assert (written[0]["count"], written[0]["sidecar"]) == (3, True)
    assert {name: written[0]["training_config"][name] for name in program} == program

    page.locator("#field-tasks-1-count").fill("0")
    expect(page.locator("#field-tasks-1-count-wrong")).to_be_visible()
    page.locator("#field-tasks-1-count").fill("1")
    expect(page.get_by_role("heading", name="It can start now")).to_be_visible()
    page.get_by_role("button", name="Submit job").click()
    page.wait_for_url("**/ui/jobs/job-*")
    copy = site.ask("GET", f"/v1/jobs/{page.url.rsplit('/', 1)[1]}")
    assert [(each["role"], each.get("count")) for each in copy["tasks"]] == [("rollout", 3), ("reward", 1)]


def picture(page: Page, name: str) -> None:
    for scheme in SCHEMES if PICTURES else ():
        page.emulate_media(color_scheme=scheme)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            page.wait_for_timeout(200)
            (Path(PICTURES) / f"{name}-{scheme}-{width}.png").write_bytes(page.screenshot(full_page=True))
    page.set_viewport_size({"width": 1366, "height": 900})
