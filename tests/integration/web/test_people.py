"""People of an identity provider, as administrators see them, and how they sign out."""

from sqlalchemy import select

from app.models import WebUser
from app.security.permissions import Role
from tests.integration.web.conftest import Browser
from tests.integration.web.conftest import sign_in_by_provider as sign_in
from tests.systems.apps import Api
from tests.systems.identity_provider import CLIENT_ID, Person, Provider


def test_administrators_see_the_people_of_their_project(person_api: Api, provider: Provider):
    sign_in(Browser(person_api))
    provider.person = Person("sub-chief", {"name": "Chief", "groups": ["chiefs"]})
    sign_in(Browser(person_api))
    with person_api.db.read() as session:
        ana = session.scalars(select(WebUser).where(WebUser.subject == "sub-ana")).one()

    everyone = person_api.get("/v1/users?order_by=name")["users"]
    of_default = person_api.data(person_api.call("GET", "/v1/users", key=person_api.make_key(Role.ADMIN)))["users"]

    assert [(each["name"], each["role"], each["project"]) for each in everyone] == [
        ("Ana <b>", "admin", "default"),
        ("Chief", "super_admin", None),
    ]
    assert [each["user_id"] for each in of_default] == [ana.id]
    assert of_default[0]["groups"] == ["other", "cn=vision,ou=groups"]
    assert (of_default[0]["email"], of_default[0]["email_verified"]) == ("ana@example.com", False)
    assert (of_default[0]["key_id"], of_default[0]["is_active"]) == (ana.key_id, True)
    assert person_api.call("GET", "/v1/users", key=person_api.make_key(Role.USER)).status_code == 403


def test_an_administrator_ends_all_access_of_a_person(person_api: Api):
    person, chief = Browser(person_api), Browser(person_api)
    sign_in(person)
    chief.sign_in(person_api.key)
    page = chief.get("/ui/admin/people")
    assert "Ana <b>" in page.text
    assert "Ana <b>" not in page.html
    assert "admin of default" in page.text
    with person_api.db.read() as session:
        key_id = session.scalars(select(WebUser)).one().key_id

    chief.act(f"/ui/admin/people/{key_id}/end")

    person.get("/ui/sessions", 303)
    assert "none until the next sign-in" in chief.get("/ui/admin/people").text


def test_without_a_provider_the_page_of_people_says_so(web: Browser, viewer: Browser):
    assert "No identity provider is set up" in web.get("/ui/admin/people").text
    viewer.get("/ui/admin/people", 403)


def test_signing_out_offers_to_sign_out_at_a_provider_that_can(person_api: Api, provider: Provider):
    provider.ends_sign_ins = True
    browser = Browser(person_api)
    sign_in(browser)
    assert browser.client.get("/ui/signed-out").headers["Location"] == "/ui/", (
        "who is signed in sees that they still are"
    )
    assert browser.post("/ui/logout").headers["Location"] == "/ui/signed-out"
    page = browser.get("/ui/signed-out")

    back = "post_logout_redirect_uri=http%3A%2F%2Flocalhost%2Fui%2Flogin"
    assert f"{provider.url}/logout?client_id={CLIENT_ID}&{back}" in page.links
    holder = Browser(person_api)
    holder.sign_in(person_api.key)
    assert holder.post("/ui/logout").headers["Location"] == "/ui/login"


def test_signing_out_leads_to_the_sign_in_where_the_provider_has_no_such_page(person_api: Api):
    browser = Browser(person_api)
    sign_in(browser)
    browser.post("/ui/logout")

    assert browser.client.get("/ui/signed-out").headers["Location"] == "/ui/login"
