"""The list of jobs in Chromium: filters in the URL, columns, and actions on several jobs at once."""

import re

from playwright.sync_api import Page, Route, expect

from tests.web.site import FEEDS, Site


def open_list(page: Page, prefix: str, **more: str) -> None:
    page.goto("/ui/jobs")
    page.get_by_label("Name begins with").fill(prefix)
    page.get_by_role("button", name="Apply").click()
    expect(page).to_have_url(re.compile(rf"/ui/jobs\?name={prefix}$"))


def test_selected_jobs_are_cancelled_after_a_question(page: Page, site: Site):
    jobs = [site.submit(f"bulk-cancel {i}") for i in range(3)]
    open_list(page, "bulk-cancel")

    page.get_by_label("Select bulk-cancel 0").check()
    page.get_by_label("Select bulk-cancel 2").check()
    page.get_by_role("group", name="Selected jobs").get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("heading", name="Cancel the 2 selected jobs?")).to_be_visible()
    page.get_by_role("button", name="Keep as it is").click()
    assert site.status(jobs[0]) != "CANCELLED"
    page.get_by_role("group", name="Selected jobs").get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Cancel jobs").click()

    expect(page.locator("#results")).to_contain_text("2 of 2 jobs: the cancellation is accepted")
    site.wait_for(jobs[0], "CANCELLED")
    site.wait_for(jobs[2], "CANCELLED")
    assert site.status(jobs[1]) != "CANCELLED"
    expect(page.locator("#job-list tr", has_text="bulk-cancel 0")).to_contain_text("CANCELLED")
    expect(page.get_by_label("Select bulk-cancel 0")).to_be_checked()


def test_a_label_is_set_on_all_jobs_of_the_page(page: Page, site: Site):
    jobs = [site.submit(f"bulk-label {i}", labels={"team": "a"}) for i in range(2)]
    open_list(page, "bulk-label")

    page.get_by_label("Select all jobs of this page").check()
    page.get_by_label("Key of the label").fill("phase")
    page.get_by_label("Value of the label").fill("two")
    page.get_by_role("button", name="Set label").click()

    expect(page.locator("#results")).to_contain_text("2 of 2 jobs: the label is set")
    for job in jobs:
        assert site.ask("GET", f"/v1/jobs/{job}")["labels"] == {"team": "a", "phase": "two"}


def test_a_metric_becomes_a_column_and_the_choice_is_in_the_url(page: Page, site: Site):
    site.submit("columns", labels={"team": "a"})
    open_list(page, "columns")

    page.locator("summary", has_text="Columns").click()
    page.get_by_role("checkbox", name="Queue").uncheck()
    page.get_by_label("Add a metric").fill("eval_loss")
    page.get_by_role("button", name="Apply").click()

    heads = page.locator("#job-list thead")
    expect(heads).to_contain_text("eval_loss")
    expect(heads).not_to_contain_text("Queue")
    assert "column=metric%3Aeval_loss" in page.url
    assert "label=" not in page.url


def test_the_list_follows_jobs_and_keeps_the_selection(page: Page, site: Site):
    job = site.submit("listed")
    open_list(page, "listed")
    page.get_by_label("Select listed").check()

    site.ask("POST", f"/v1/jobs/{job}/cancel")

    expect(page.locator("#job-list")).to_contain_text("CANCELLED")
    expect(page.get_by_label("Select listed")).to_be_checked()


def test_the_selection_is_never_away_while_the_list_is_replaced(page: Page, site: Site):
    site.submit("kept-selected")
    open_list(page, "kept-selected")
    page.get_by_label("Select kept-selected").check()
    page.evaluate(
        """() => document.addEventListener("htmx:afterSwap", () => {
          document.body.dataset.seen = document.querySelector("#job-list input[name=job]").checked;
        })"""
    )

    page.locator("#job-list").dispatch_event("refresh")

    expect(page.locator("body")).to_have_attribute("data-seen", "true")


def test_jobs_of_several_pages_stay_selected_and_are_compared(page: Page, site: Site):
    site.ask("POST", "/v1/queues", {"name": "many", "paused": True})
    for i in range(52):
        site.submit(f"of-pages {i:02}", scheduling_config={"queue": "many"})
    open_list(page, "of-pages")
    page.get_by_label("Select of-pages 51").check()
    page.get_by_role("link", name="Next page").click()
    page.get_by_label("Select of-pages 00").check()
    expect(page.locator("#selected-count")).to_have_text("2 selected, 1 of them not on this page")
    page.reload()
    expect(page.get_by_label("Select of-pages 00")).to_be_checked()

    page.get_by_role("button", name="Compare").click()

    expect(page.get_by_role("heading", name="Compare 2 jobs")).to_be_visible()
    page.get_by_label("Add a job").fill("of-pages 30")
    page.get_by_role("button", name="Apply").click()
    expect(page.get_by_role("heading", name="Compare 3 jobs")).to_be_visible()
    page.goto("/ui/jobs?name=of-pages&state=waiting")
    expect(page.get_by_text("Select jobs to compare them")).to_be_visible()  # another list
    page.get_by_label("Select all jobs of this page").check()
    page.get_by_role("link", name="Next page").click()
    page.get_by_role("group", name="Selected jobs").get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Cancel jobs").click()
    expect(page.locator("#results")).to_contain_text("50 of 50 jobs: the cancellation is accepted")
    page.get_by_role("button", name="Clear selection").click()
    expect(page.get_by_text("Select jobs to compare them")).to_be_visible()


def test_going_back_to_a_list_ticks_no_box_that_is_not_counted(page: Page, site: Site):
    jobs = [site.submit(f"gone-back {i}") for i in range(2)]
    open_list(page, "gone-back")
    page.get_by_label("Select gone-back 0").check()
    page.goto("/ui/jobs?name=of-another-list")  # where nothing is selected
    expect(page.get_by_text("Select jobs to compare them")).to_be_visible()

    page.go_back()
    page.wait_for_load_state()
    expect(page.get_by_text("Select jobs to compare them")).to_be_visible()
    expect(page.get_by_label("Select gone-back 0")).not_to_be_checked()
    page.get_by_label("Select gone-back 1").check()
    page.get_by_role("group", name="Selected jobs").get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Cancel jobs").click()

    expect(page.locator("#results")).to_contain_text("1 of 1 job: the cancellation is accepted")
    site.wait_for(jobs[1], "CANCELLED")
    assert site.status(jobs[0]) != "CANCELLED"


def test_only_what_is_counted_is_sent(page: Page, site: Site):
    jobs = [site.submit(f"only-counted {i}") for i in range(2)]
    open_list(page, "only-counted")
    page.evaluate("""() => sessionStorage.setItem("selected-jobs", "{")""")  # by another version of the page
    page.reload()
    page.get_by_label("Select only-counted 1").check()
    page.get_by_label("Select only-counted 0").evaluate("box => { box.checked = true }")  # as a browser restores it

    page.get_by_role("group", name="Selected jobs").get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Cancel jobs").click()

    expect(page.locator("#results")).to_contain_text("1 of 1 job: the cancellation is accepted")
    site.wait_for(jobs[1], "CANCELLED")
    assert site.status(jobs[0]) != "CANCELLED"


def test_two_selected_jobs_are_compared_by_keyboard_alone(page: Page, site: Site):
    for i in range(2):
        site.submit(f"by-keys {i}", steps=600 + i)
    open_list(page, "by-keys")

    page.get_by_label("Select by-keys 0").focus()
    page.keyboard.press("Space")
    page.get_by_label("Select by-keys 1").focus()
    page.keyboard.press("Space")
    page.get_by_role("button", name="Compare").focus()
    page.keyboard.press("Enter")

    expect(page.get_by_role("heading", name="Compare 2 jobs")).to_be_visible()
    expect(page.get_by_role("row", name="training_config.hyperparameters.steps")).to_contain_text("600")


def test_a_box_that_is_pressed_is_replaced_only_after_its_click(page: Page, site: Site):
    site.submit("box-pressed")
    open_list(page, "box-pressed")
    box = page.get_by_label("Select box-pressed")
    box.hover()
    page.mouse.down()

    with page.expect_response("**/ui/jobs?*name=box-pressed*") as asked:
        page.locator("#job-list").dispatch_event("refresh")
    asked.value.finished()
    page.wait_for_timeout(300)
    with page.expect_response("**/ui/jobs?*name=box-pressed*"):
        page.mouse.up()

    expect(box).to_be_checked()


def test_a_change_while_the_list_is_on_its_way_is_asked_for_after_it(page: Page, site: Site):
    site.submit("on-its-way")
    page.add_init_script(FEEDS)
    open_list(page, "on-its-way")
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/ui/jobs?*name=on-its-way*", hold)

    with page.expect_request("**/ui/jobs?*name=on-its-way*"):
        page.locator("#job-list").dispatch_event("refresh")
    page.locator("#job-list").dispatch_event("live")
    page.wait_for_timeout(100)  # until the list would have asked
    with page.expect_request("**/ui/jobs?*name=on-its-way*"):
        held.pop().continue_()
