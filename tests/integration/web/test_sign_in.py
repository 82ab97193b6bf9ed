"""Signing in with a key: what the cookie is worth, and for how long."""

import re
from datetime import timedelta

import pytest
from sqlalchemy import select, update

from app.models import ApiKey, AuditEntry, WebSession
from app.models.base import utc_now
from app.security.permissions import Role
from app.services.access import web_sessions
from tests.integration.web.conftest import SITE, Browser
from tests.systems.apps import Api


def key_id_of(api: Api, key: str) -> str:
    with api.db.read() as session:
        found = session.scalar(select(ApiKey.id).where(ApiKey.prefix == key.rpartition("_")[0]))
    assert found is not None
    return found


def test_root_leads_to_the_dashboard_and_the_dashboard_to_the_sign_in(web_api: Api):
    browser = Browser(web_api)

    assert browser.client.get("/").headers["Location"] == "/ui/"
    assert browser.client.get("/ui/jobs?name=a").headers["Location"] == "/ui/login?next=/ui/jobs?name%3Da"
    assert "Sign in" in browser.get("/ui/login").text


LINK = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "document", "Sec-Fetch-Mode": "navigate"}


def test_a_link_of_another_site_leads_on_by_a_page_so_that_the_session_counts(web_api: Api):
    browser = Browser(web_api)

    arrived = browser.client.get("/ui/jobs?name=a%22b", headers=LINK)

    assert arrived.status_code == 200
    assert '<meta http-equiv="refresh" content="0; url=/ui/jobs?name=a%22b">' in arrived.text
    assert "Set-Cookie" not in arrived.headers
    followed = browser.client.get("/ui/jobs?name=a", headers={**LINK, "Sec-Fetch-Site": "same-origin"})
    assert followed.headers["Location"].startswith("/ui/login")
    framed = browser.client.get("/ui/jobs", headers={**LINK, "Sec-Fetch-Dest": "iframe"})
    assert framed.headers["Location"].startswith("/ui/login")
    assert browser.client.post("/ui/jobs/new", headers={**LINK, "Origin": "https://x.example"}).status_code != 200


def test_a_key_signs_in_and_the_page_asked_for_follows(web_api: Api):
    browser = Browser(web_api)

    answer = browser.client.post(
        "/ui/login", data={"key": f" {web_api.key}\n", "next": "/ui/jobs?name=a"}, headers={"Origin": SITE}
    )

    assert (answer.status_code, answer.headers["Location"]) == (303, "/ui/jobs?name=a")
    assert re.fullmatch(
        r"trainyard-session=[\w-]{43}; Expires=[^;]+; Max-Age=43200; HttpOnly; Path=/; SameSite=Strict",
        answer.headers["Set-Cookie"],
    )
    with web_api.db.read() as session:
        row = session.scalars(select(WebSession)).one()
        assert row.secret_hash not in answer.headers["Set-Cookie"]
        actions = session.scalars(select(AuditEntry.action).where(AuditEntry.target == row.id)).all()
    assert actions == ["session.create"]


def test_behind_tls_the_cookie_is_of_this_host_alone(web_api: Api):
    answer = Browser(web_api).client.post(
        "/ui/login", data={"key": web_api.key}, headers={"Origin": "https://localhost"}, base_url="https://localhost"
    )

    assert answer.headers["Set-Cookie"].startswith("__Host-trainyard-session=")
    assert "; Secure; HttpOnly; Path=/; SameSite=Strict" in answer.headers["Set-Cookie"]


@pytest.mark.parametrize("key", ["", "nonsense", "ty_000000000000_" + "x" * 38])
def test_a_wrong_key_is_refused_and_audited(web_api: Api, key: str):
    browser = Browser(web_api)

    answer = browser.sign_in(key)

    assert answer.status_code == 401
    assert "unknown, revoked or expired" in answer.get_data(as_text=True)
    assert "Set-Cookie" not in answer.headers
    with web_api.db.read() as session:
        assert session.scalars(select(AuditEntry.target).where(AuditEntry.action == "auth.denied")).all() == [
            "POST /ui/login"
        ]


def test_a_key_that_only_asks_models_cannot_sign_in(web_api: Api):
    answer = Browser(web_api).sign_in(web_api.make_key(Role.INFERENCE))

    assert answer.status_code == 403
    assert "Set-Cookie" not in answer.headers


@pytest.mark.parametrize(
    "wanted",
    ["https://evil.example/ui", "//evil.example", "/v1/jobs", "/ui\\@evil.example", "//[", "http://[/ui", "/ui\r\n"],
)
def test_the_sign_in_continues_within_the_dashboard_alone(web_api: Api, wanted: str):
    answer = Browser(web_api).client.post(
        "/ui/login", data={"key": web_api.key, "next": wanted}, headers={"Origin": SITE}
    )

    assert answer.status_code == 400


def test_revoking_the_key_ends_its_sessions(web_api: Api):
    key = web_api.make_key(Role.USER)
    browser = Browser(web_api)
    browser.sign_in(key)
    browser.get("/ui/jobs")

    assert web_api.call("DELETE", f"/v1/keys/{key_id_of(web_api, key)}").status_code == 204

    assert browser.client.get("/ui/jobs").status_code == 303


@pytest.mark.parametrize(("column", "age"), [("created_at", timedelta(hours=13)), ("last_seen_at", timedelta(hours=3))])
def test_a_session_ends_by_age_and_by_idleness(web: Browser, column: str, age: timedelta):
    with web.api.db.write() as session:
        session.execute(update(WebSession).values({column: utc_now() - age}))

    assert web.client.get("/ui/jobs").status_code == 303


def test_what_a_script_asks_by_itself_does_not_extend_the_session(web: Browser):
    long_ago = utc_now() - timedelta(minutes=30)
    seen = []
    for headers in ({"X-Background": "true"}, {}):
        with web.api.db.write() as session:
            session.execute(update(WebSession).values(last_seen_at=long_ago))
        web.get("/ui/jobs", headers=headers)
        with web.api.db.read() as session:
            moment = session.scalars(select(WebSession.last_seen_at)).one()
        seen.append(moment > long_ago + timedelta(minutes=1))

    assert seen == [False, True]


def test_signing_out_ends_the_session_for_good(web: Browser):
    cookie = web.client.get_cookie("trainyard-session")
    assert cookie is not None

    web.act("/ui/logout")
    web.client.set_cookie("trainyard-session", cookie.value)

    assert web.client.get("/ui/jobs").status_code == 303


def test_own_sessions_are_listed_and_can_be_ended_and_others_cannot(web: Browser, member: Browser):
    second = Browser(web.api)
    second.sign_in(web.api.key)
    with web.api.db.read() as session:
        rows = session.scalars(select(WebSession).order_by(WebSession.created_at)).all()
    mine = [row.id for row in rows if row.key_id == rows[0].key_id]
    foreign = next(row.id for row in rows if row.key_id != rows[0].key_id)

    assert web.get("/ui/sessions").text.count("this one") == 1
    assert web.post(f"/ui/sessions/{foreign}/end").status_code == 404
    assert web.act(f"/ui/sessions/{mine[-1]}/end") == "The sign-in has ended."

    assert second.client.get("/ui/jobs").status_code == 303
    member.get("/ui/jobs")


def test_the_cookie_counts_below_the_dashboard_only(web: Browser):
    assert web.client.get("/v1/jobs").status_code == 401
    assert web.client.get("/ui/jobs", headers={"Authorization": f"Bearer {web.api.key}"}).status_code == 200
    assert (
        Browser(web.api).client.get("/ui/jobs", headers={"Authorization": f"Bearer {web.api.key}"}).status_code == 303
    )


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": ""},
        {"Origin": "http://["},
        {"Origin": SITE, "Sec-Fetch-Site": "cross-site"},
        {"Origin": SITE, "Sec-Fetch-Site": "same-site"},
    ],
    ids=["another site", "null", "none", "no address", "says cross-site", "a neighbor"],
)
@pytest.mark.parametrize("path", ["/ui/login", "/ui/logout"])
def test_forms_of_other_sites_do_nothing(web: Browser, path: str, headers: dict[str, str]):
    answer = web.post(path, {"key": web.api.key} if path == "/ui/login" else {}, headers=headers)

    assert answer.status_code == 403
    web.get("/ui/jobs")


def test_with_tls_a_page_without_it_is_of_another_site(web_api: Api):
    answer = Browser(web_api).client.post(
        "/ui/login", data={"key": web_api.key}, headers={"Origin": SITE}, base_url="https://localhost"
    )

    assert answer.status_code == 403


def test_what_is_no_path_of_the_dashboard_is_not_continued_at(web_api: Api):
    assert (
        Browser(web_api).client.get("/ui/jobs?name=a%5Cb").headers["Location"]
        == "/ui/login?next=/ui/jobs?name%3Da%255Cb"
    )


def test_signing_in_again_ends_the_session_before(web: Browser):
    cookie = web.client.get_cookie("trainyard-session")
    assert cookie is not None

    web.sign_in(web.api.key)

    with web.api.db.read() as session:
        assert len(session.scalars(select(WebSession)).all()) == 1
    web.client.set_cookie("trainyard-session", cookie.value)
    assert web.client.get("/ui/jobs").status_code == 303


def test_the_sign_ins_of_a_key_are_shown_to_a_number(web: Browser):
    with web.api.db.write() as session:
        mine = session.scalars(select(WebSession)).one()
        session.add_all(
            WebSession(id=f"session-{number}", secret_hash=f"{number:064}", key_id=mine.key_id, user_agent="crowd")
            for number in range(web_sessions.MOST + 5)
        )

    assert web.get("/ui/sessions").text.count("crowd") == web_sessions.MOST


def test_the_header_names_an_administrators_key_as_everywhere(web: Browser, member: Browser):
    assert '<a href="/ui/sessions">administrator</a>' in web.get("/ui/jobs").html
    assert "administrator" not in member.get("/ui/sessions").text


def test_the_token_is_another_text_on_each_page(web: Browser):
    web.get("/ui/sessions")
    first = web.csrf
    web.get("/ui/sessions")
    assert web.csrf != first

    assert web.post("/ui/logout", {"csrf": first[:-2]}).status_code == 403
    assert web.post("/ui/logout", {"csrf": "é"}).status_code == 403
    assert web.post("/ui/logout", {"csrf": first}).status_code == 303


def test_a_form_without_the_token_of_its_session_does_nothing(web: Browser, member: Browser):
    assert web.post("/ui/logout", {"csrf": member.csrf}).status_code == 403
    assert web.post("/ui/logout", {"csrf": ""}).status_code == 403
    web.get("/ui/jobs")


def test_pages_allow_no_script_of_others(web: Browser):
    headers = web.client.get("/ui/jobs").headers

    assert headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'self'; style-src 'self'; ")
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert headers["Cache-Control"] == "private, no-store"
    assert headers["Referrer-Policy"] == "same-origin"


@pytest.mark.parametrize("headers", [{}, {"HX-Request": "true"}])
def test_the_sign_in_says_why_one_is_asked_again(web: Browser, headers: dict[str, str]):
    with web.api.db.write() as session:
        session.execute(update(WebSession).values(created_at=utc_now() - timedelta(days=2)))

    web.client.get("/ui/jobs", headers=headers)

    assert "You are signed out: the sign-in has ended" in web.get("/ui/login").text


def test_sign_ins_name_the_browser_in_short(web: Browser):
    with web.api.db.write() as session:
        agent = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/143.0.0.0 Safari/537.36"
        session.execute(update(WebSession).values(user_agent=agent))

    for path in ("/ui/sessions", "/ui/admin/sign-ins"):
        page = web.get(path)
        assert "Chrome on Linux" in page.text
        assert "AppleWebKit" not in page.text
