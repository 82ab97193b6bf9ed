"""A whole walk by keyboard: every stop can be seen, and what a key opened gives the focus back."""

from playwright.sync_api import Locator, Page, expect

from tests.web.content import Content
from tests.web.site import Site

MOST_STOPS = 160
# Whether it has the focus, and, where what has the focus cannot be seen, what that is: it needs a size and an outline.
STOP = """(wanted) => {
    const element = document.activeElement, box = element.getBoundingClientRect();
    const isSeen = element.matches(":focus-visible") && box.width > 0 && box.height > 0
        && getComputedStyle(element).outlineStyle !== "none";
    // The body has it between the last stop and the first.
    return [element === wanted, isSeen || element === document.body ? "" : element.outerHTML.slice(0, 200)];
}"""


def tab_to(page: Page, wanted: Locator) -> None:
    """Press Tab until the element has the focus; each stop on the way has to show that it has it."""
    expect(wanted).to_be_visible()
    for _ in range(MOST_STOPS):
        page.keyboard.press("Tab")
        is_there, unseen = wanted.evaluate(STOP)
        assert unseen == ""
        if is_there:
            return
    raise AssertionError(f"no Tab leads to {wanted}")


def enter(page: Page, wanted: Locator) -> None:
    tab_to(page, wanted)
    page.keyboard.press("Enter")


def section(page: Page, name: str) -> Locator:
    return page.get_by_role("navigation", name="Main").get_by_role("link", name=name, exact=True)


def filter_jobs(page: Page) -> None:
    tab_to(page, page.get_by_label("Name begins with"))
    page.keyboard.type("walked")
    page.keyboard.press("Enter")
    page.wait_for_url("**/ui/jobs?name=walked*")


def test_a_person_without_a_mouse_gets_everywhere(page: Page, site: Site, content: Content) -> None:
    jobs = [site.submit(f"walked {i}", steps=600 + i) for i in range(2)]
    site.wait_until_it_counts(jobs[0])
    page.goto("/ui/")

    enter(page, section(page, "Jobs"))
    filter_jobs(page)
    enter(page, page.get_by_role("link", name="walked 0"))
    pause_after_a_question(page)
    search_the_log(page)

    enter(page, section(page, "Jobs"))
    filter_jobs(page)
    for i in range(2):
        tab_to(page, page.get_by_label(f"Select walked {i}"))
        page.keyboard.press("Space")
    enter(page, page.get_by_role("button", name="Compare"))
    expect(page.get_by_role("heading", name="Compare 2 jobs")).to_be_visible()

    submit_by_form(page)
    enter(page, section(page, "Sweeps"))
    enter(page, page.get_by_role("link", name="rates", exact=True))
    enter(page, page.get_by_role("link", name="Fork"))
    page.wait_for_url(f"**/ui/sweeps/{content.sweep}/fork")


def pause_after_a_question(page: Page) -> None:
    """Answer the question about cancelling by Escape, then pause the job."""
    actions, dialog = page.get_by_role("group", name="Actions"), page.get_by_role("dialog")
    cancel = actions.get_by_role("button", name="Cancel", exact=True)
    enter(page, cancel)
    expect(dialog).to_be_visible()
    assert dialog.evaluate("(element) => element.contains(document.activeElement)")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(cancel).to_be_focused()
    enter(page, actions.get_by_role("button", name="Pause", exact=True))
    expect(page.locator("#notices")).to_contain_text("pauses")


def search_the_log(page: Page) -> None:
    enter(page, page.get_by_role("navigation", name="Job").get_by_role("link", name="Log"))
    tab_to(page, page.get_by_label("Search", exact=True))
    page.keyboard.type("counts from")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status").filter(has_text="found")).to_contain_text("line found")


def submit_by_form(page: Page) -> None:
    enter(page, section(page, "Submit"))
    tab_to(page, page.locator('#job-form [data-path="name"]'))
    page.keyboard.press("Control+a")
    page.keyboard.type("typed alone")
    tab_to(page, page.locator('#job-form [data-path="training_config.framework.type"]'))
    page.keyboard.type("CUSTOM")
    tab_to(page, page.locator('#job-form [data-path="training_config.framework.custom_script_path"]'))
    page.keyboard.type("examples/cluster/count.py")
    tab_to(page, page.get_by_label("Training data"))
    page.keyboard.type("examples/cluster/data.jsonl")
    expect(page.locator("#check")).to_contain_text("Place in the queue")
    enter(page, page.get_by_role("button", name="Submit job"))
    page.wait_for_url("**/ui/jobs/job-*")
