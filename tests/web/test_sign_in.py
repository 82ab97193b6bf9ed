"""Signing in and out in a browser."""

from typing import Any

from playwright.sync_api import BrowserContext, expect

from tests.web.site import Site


def test_a_wrong_key_is_told_and_a_right_one_leads_to_the_page_asked_for(context: BrowserContext, site: Site):
    page = context.new_page()

    page.goto("/ui/jobs")
    expect(page).to_have_url(f"{site.url}/ui/login?next=/ui/jobs")
    page.get_by_label("API key").fill("ty_nonsense")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("unknown, revoked or expired")
    page.get_by_label("API key").fill(site.key)
    page.keyboard.press("Enter")

    expect(page).to_have_url(f"{site.url}/ui/jobs")


def test_a_revoked_key_is_out_at_once(context: BrowserContext, site: Site):
    key = site.project("revoked-in-web", "viewer")
    page = context.new_page()
    site.sign_in(page, key)
    rows = site.ask("GET", "/v1/keys?page_size=100")["keys"]
    key_id = next(row["key_id"] for row in rows if row["project"] == "revoked-in-web")

    site.ask("DELETE", f"/v1/keys/{key_id}")
    page.goto("/ui/jobs")

    expect(page).to_have_url(f"{site.url}/ui/login?next=/ui/jobs")


def test_signing_out_leads_to_the_form_and_says_so(context: BrowserContext, site: Site):
    page = context.new_page()
    site.sign_in(page, site.key)
    page.get_by_role("button", name="Sign out").click()

    expect(page).to_have_url(f"{site.url}/ui/login")
    expect(page.get_by_role("status")).to_contain_text("Signed out.")
    page.goto("/ui/")
    expect(page).to_have_url(f"{site.url}/ui/login?next=/ui/")


def test_a_page_of_another_site_can_do_nothing(context: BrowserContext, site: Site):
    """A form that a foreign page sends: browsers leave the cookie out, and say where it comes from."""
    page = context.new_page()
    site.sign_in(page, site.key)
    attacker = context.new_page()  # about:blank, an origin of its own

    with attacker.expect_response(f"{site.url}/ui/logout") as answer:
        attacker.evaluate(
            """(action) => {
                const form = document.createElement("form");
                form.method = "post";
                form.action = action;
                document.body.append(form);
                form.submit();
            }""",
            f"{site.url}/ui/logout",
        )

    assert (answer.value.status, answer.value.headers["location"]) == (303, "/ui/login"), "it came without the cookie"
    page.reload()
    expect(page.get_by_role("button", name="Sign out")).to_be_visible()


def test_the_form_to_sign_in_has_no_violations(context: BrowserContext, violations: Any):
    for scheme in ("light", "dark"):
        page = context.new_page()
        page.emulate_media(color_scheme=scheme)
        page.goto("/ui/login")
        assert violations(page) == [], scheme
