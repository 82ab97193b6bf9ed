"""What administrators do in a browser: keys that are shown once, confirmations, and what is refused beside the form."""

from playwright.sync_api import BrowserContext, Page, expect

from tests.web.site import Site


def test_a_key_is_made_copied_and_revoked_by_keyboard(page: Page, context: BrowserContext, site: Site):
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto("/ui/admin/keys")
    page.get_by_text("Create a key").click()
    page.get_by_label("Name").fill("laptop of Ana")
    page.keyboard.press("Enter")
    expect(page.get_by_text("shown only this once")).to_be_visible()
    expect(page.get_by_role("heading", name="New key")).to_be_focused()
    page.get_by_role("button", name="Copy").first.click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    key = page.evaluate("navigator.clipboard.readText()")
    other = context.browser
    assert other is not None
    with_key = other.new_context(base_url=site.url)
    theirs = with_key.new_page()
    site.sign_in(theirs, key)

    page.goto("/ui/admin/keys")
    page.get_by_role("link", name="laptop of Ana").first.click()
    page.get_by_role("button", name="Revoke the key").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_contain_text("cannot be undone")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.get_by_role("button", name="Revoke the key").click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke the key").click()

    expect(page.locator("#notices")).to_contain_text("The key is revoked")
    theirs.goto("/ui/jobs")
    expect(theirs).to_have_url(f"{site.url}/ui/login?next=/ui/jobs")
    with_key.close()


def test_what_is_refused_is_said_beside_what_was_typed(page: Page):
    page.goto("/ui/admin/queues")
    page.get_by_text("Create a queue").click()
    page.get_by_label("Name").fill("Not a name")
    page.get_by_role("button", name="Create the queue").click()

    expect(page.get_by_role("alert")).to_contain_text("lower-case letters")
    expect(page.get_by_label("Name")).to_have_value("Not a name")


def test_a_webhook_is_made_and_a_test_event_sent_again(page: Page):
    page.goto("/ui/admin/webhooks")
    page.get_by_text("Create a webhook").click()
    page.get_by_label("Address").fill("https://receiver.invalid/hook")
    page.get_by_role("checkbox", name="FAILED", exact=True).check()
    page.get_by_role("button", name="Create the webhook").click()
    expect(page.get_by_text("whsec_")).to_be_visible()
    page.get_by_role("link", name="To the webhook").click()
    page.get_by_role("button", name="Send a test event").click()

    expect(page.locator("#notices")).to_contain_text("on its way")
    expect(page.get_by_role("region", name="Deliveries")).to_contain_text("webhook.test")


def test_the_audit_log_is_filtered_and_saved_as_a_file(page: Page):
    page.goto("/ui/admin/audit")
    page.get_by_label("Action").fill("session")
    page.get_by_role("button", name="Filter").click()
    expect(page.get_by_role("region", name="Audit log entries")).to_contain_text("session.create")
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV").click()

    assert download.value.suggested_filename == "audit.csv"
    assert download.value.path().read_text().startswith("id,at,project,actor,action")
