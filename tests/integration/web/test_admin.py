"""The admin pages: what each role sees and may do, secrets that are shown once, and the audit log as a file."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select, update

from app.models import ApiKey, AuditEntry, Project, Queue, Webhook, WebhookDelivery, WebSession
from app.models.base import utc_now
from app.security.permissions import Role
from tests.integration.web.conftest import Browser, Page
from tests.systems.apps import Api

CANARY = "<img src=x onerror=alert(1)>\"'"
TABS = ("keys", "projects", "queues", "webhooks", "audit", "people", "sign-ins")


@pytest.fixture
def admin(web_api: Api) -> Browser:
    """Of an administrator of the project `default`."""
    browser = Browser(web_api)
    browser.sign_in(web_api.make_key(Role.ADMIN, name="lab"))
    return browser


@pytest.fixture
def other(web_api: Api) -> Browser:
    """Of an administrator of the project `other`."""
    browser = Browser(web_api)
    browser.sign_in(web_api.make_key(Role.ADMIN, "other", name="neighbor"))
    return browser


def answer_to(browser: Browser, path: str, fields: dict[str, Any] | None = None, status: int = 200) -> Page:
    answer = browser.post(path, fields)
    assert answer.status_code == status, answer.get_data(as_text=True)[:2000]
    return Page(answer.get_data(as_text=True))


def one_id(browser: Browser, column: Any, **where: object) -> str:
    with browser.api.db.read() as session:
        return str(session.scalars(select(column).filter_by(**where)).one())


def actions(browser: Browser, target: str) -> list[str]:
    with browser.api.db.read() as session:
        rows = session.scalars(select(AuditEntry.action).where(AuditEntry.target == target).order_by(AuditEntry.at))
        return list(rows)


@pytest.mark.parametrize(
    ("role", "opened", "refused"),
    [
        (Role.VIEWER, ("projects", "queues", "webhooks"), ("keys", "audit", "people", "sign-ins")),
        (Role.USER, ("projects", "queues", "webhooks"), ("keys", "audit", "people", "sign-ins")),
        (Role.ADMIN, TABS, ()),
    ],
)
def test_each_role_has_its_tabs(web_api: Api, role: Role, opened: tuple[str, ...], refused: tuple[str, ...]):
    browser = Browser(web_api)
    browser.sign_in(web_api.make_key(role))

    for tab in opened:
        links = browser.get(f"/ui/admin/{tab}").links
        assert [link for link in links if link.startswith("/ui/admin/") and link.count("/") == 3][: len(opened)] == [
            f"/ui/admin/{each}" for each in TABS if each in opened
        ]
    for tab in refused:
        browser.get(f"/ui/admin/{tab}", 403)
    assert browser.client.get("/ui/admin").headers["Location"] == f"/ui/admin/{opened[0]}"


def test_a_new_key_is_shown_once_and_signs_in(admin: Browser):
    page = answer_to(
        admin, "/ui/admin/keys", {"name": CANARY, "role": "user", "expires_days": "7", "requests_per_minute": "60"}
    )

    key = next(word for word in page.text.split() if word.startswith("ty_"))
    assert Browser(admin.api).sign_in(key).status_code == 303
    row = one_id(admin, ApiKey.id, name=CANARY)
    for path in ("/ui/admin/keys", f"/ui/admin/keys/{row}"):
        shown = admin.get(path)
        assert CANARY in shown.text
        assert CANARY not in shown.html
        assert key not in shown.html
    assert actions(admin, row) == ["key.create"]


def test_a_script_gets_the_new_key_alone(admin: Browser):
    answer = admin.post("/ui/admin/keys", {"role": "viewer"}, headers={"HX-Request": "true"})

    assert "shown only this once" in answer.get_data(as_text=True)
    assert "<html" not in answer.get_data(as_text=True)
    assert answer.headers["Cache-Control"] == "private, no-store"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"role": "user", "expires_days": "soon"}, "expires_days: 'soon' must be an integer"),
        ({"role": "user", "expires_days": "0"}, "expires_days"),
        ({"role": "king"}, "role: 'king' must be one of"),
        ({"role": "super_admin"}, "only a super admin"),
        ({"role": "user", "project": "other"}, "no project other"),
        ({"role": "user", "name": "x" * 129}, "must have at most 128 characters"),
    ],
)
def test_a_key_that_may_not_be_made_is_refused(admin: Browser, other: Browser, fields: dict[str, str], said: str):
    del other
    answer = admin.post("/ui/admin/keys", fields, headers={"HX-Request": "true"})

    assert answer.status_code in (400, 403, 404, 422)
    assert said in Page(answer.get_data(as_text=True)).text
    assert answer.headers["HX-Retarget"] == "#notices"


def test_a_super_admin_makes_keys_of_every_project_and_of_none(web: Browser, other: Browser):
    del other
    answer_to(web, "/ui/admin/keys", {"role": "viewer", "project": "other", "name": "a"})
    answer_to(web, "/ui/admin/keys", {"role": "super_admin", "project": "other", "name": "b"})

    with web.api.db.read() as session:
        found = session.execute(select(ApiKey.name, ApiKey.project).where(ApiKey.name.in_(["a", "b"]))).all()
    assert {tuple(row) for row in found} == {("a", "other"), ("b", None)}


def test_a_rotated_key_stays_valid_for_as_long_as_chosen(admin: Browser):
    old = admin.api.make_key(Role.USER, name="robot")
    row = one_id(admin, ApiKey.id, name="robot")
    admin.get(f"/ui/admin/keys/{row}")

    page = answer_to(admin, f"/ui/admin/keys/{row}/rotate", {"grace_seconds": "3600"})

    new = next(word for word in page.text.split() if word.startswith("ty_"))
    assert [Browser(admin.api).sign_in(key).status_code for key in (old, new)] == [303, 303]
    assert "replaced, still valid" in admin.get(f"/ui/admin/keys/{row}").text
    assert admin.post(f"/ui/admin/keys/{row}/rotate", {}).status_code == 409


def test_a_revoked_key_ends_the_sign_ins_made_with_it(admin: Browser, member: Browser):
    row = one_id(admin, ApiKey.id, role="user")

    assert "revoked" in admin.act(f"/ui/admin/keys/{row}/revoke")

    assert member.client.get("/ui/jobs").status_code == 303
    assert "✕ revoked" in admin.get(f"/ui/admin/keys/{row}").text


def test_keys_sign_ins_and_webhooks_of_another_project_do_not_exist(admin: Browser, other: Browser):
    foreign = one_id(admin, ApiKey.id, name="neighbor")
    sign_in = one_id(admin, WebSession.id, key_id=foreign)
    answer_to(other, "/ui/admin/webhooks", {"url": "https://neighbor.example/hook"})
    hook = one_id(admin, Webhook.id)
    with admin.api.db.read() as session:
        entry = session.scalars(select(AuditEntry.id).where(AuditEntry.target == hook)).one()

    for path in ("keys", "webhooks", "audit", "sign-ins", "projects"):
        html = admin.get(f"/ui/admin/{path}").html
        assert "neighbor" not in html
        assert foreign not in html
    for path in (f"keys/{foreign}", f"webhooks/{hook}", f"audit/{entry}", "projects/other"):
        admin.get(f"/ui/admin/{path}", 404)
    for path in (
        f"keys/{foreign}/revoke",
        f"keys/{foreign}/rotate",
        f"webhooks/{hook}/delete",
        f"webhooks/{hook}/test",
        f"sign-ins/{sign_in}/end",
    ):
        assert admin.post(f"/ui/admin/{path}").status_code == 404, path
    assert "neighbor" not in admin.client.get("/ui/admin/audit/export").get_data(as_text=True)
    other.get("/ui/jobs")


@pytest.mark.parametrize(
    "path",
    [
        "keys",
        "keys/key_x/revoke",
        "projects",
        "projects/default",
        "projects/default/delete",
        "queues",
        "queues/default",
        "queues/default/pause",
        "webhooks",
        "webhooks/whk_x/delete",
        "sign-ins/ses_x/end",
    ],
)
def test_a_viewer_changes_nothing(viewer: Browser, path: str):
    viewer.get("/ui/admin/queues")

    assert (
        viewer.post(f"/ui/admin/{path}", {"name": "x", "paused": "true", "url": "https://a.example"}).status_code == 403
    )


def test_a_project_is_made_described_and_deleted(web: Browser):
    made = {"name": "vision", "description": CANARY, "claims": "use"}
    assert web.act("/ui/admin/projects", made) == "The project vision is made."
    assert "existing ones only" in web.get("/ui/admin/projects/vision").text
    services = "pypi.org:443\r\n\r\n *.huggingface.co:443 "
    demands = {"required_capabilities": "sandbox:full\n\nlimits", "claims": "create", "auto_services": "off"}
    demands |= {"image_sources": "registry.example/team\nlocal", "image_digests": "required"}
    web.act("/ui/admin/projects/vision", {"description": "pictures", "egress": services, **demands})

    with web.api.db.read() as session:
        row = session.get_one(Project, "vision")
        assert (row.description, row.egress) == ("pictures", ["pypi.org:443", "*.huggingface.co:443"])
        assert (row.claims, row.auto_services) == ("create", "off")
        assert (row.image_sources, row.image_digests) == (["registry.example/team", "local"], "required")
    assert "*.huggingface.co:443" in web.get("/ui/admin/projects/vision").text
    assert "limits sandbox:full" in web.get("/ui/admin/projects/vision").text
    wrong = answer_to(web, "/ui/admin/projects/vision", {"claims": "all"}, 422)
    assert "create, use" in wrong.text
    bad = answer_to(web, "/ui/admin/projects/vision", {"required_capabilities": "a sandbox"}, 422)
    assert "required_capabilities" in bad.text
    refused = answer_to(web, "/ui/admin/projects/vision", {"egress": "pypi.org"}, 422)
    assert "use host:port or *.domain:port" in refused.text

    web.act("/ui/admin/projects/vision", {"claims": "use", "description": "pictures"})
    web.act("/ui/admin/projects/vision", {})  # every field is empty
    with web.api.db.read() as session:
        row = session.get_one(Project, "vision")
        assert (row.description, row.egress, row.claims) == ("", [], "use")  # a choice has no empty value
    web.act("/ui/admin/projects/vision/delete")
    web.get("/ui/admin/projects/vision", 404)
    assert actions(web, "vision") == ["project.create", *["project.patch"] * 3, "project.delete"]


def test_a_project_with_jobs_is_not_deleted(web: Browser):
    web.api.submit(key=web.api.make_key(Role.USER, "vision"))

    assert "still has 1 jobs" in answer_to(web, "/ui/admin/projects/vision/delete", status=409).text
    assert "Delete the project" not in web.get("/ui/admin/projects/default").text


def test_a_queue_is_made_limited_and_paused(web: Browser):
    web.act("/ui/admin/queues", {"name": "night", "max_running_jobs": "4", "weight": "0.5"})
    web.act("/ui/admin/queues/night", {"max_waiting_jobs": "0"})
    assert "starts no jobs" in web.act("/ui/admin/queues/night/pause", {"paused": "true"})

    with web.api.db.read() as session:
        row = session.get_one(Queue, "night")
        assert (row.max_running_jobs, row.max_waiting_jobs, row.weight, row.is_paused) == (None, 0, None, True)
    assert "‖ paused" in web.get("/ui/admin/queues").text
    assert "starts jobs again" in web.act("/ui/admin/queues/night/pause", {"paused": "false"})
    assert actions(web, "night") == ["queue.create", *["queue.patch"] * 3]


@pytest.mark.parametrize(("field", "value"), [("weight", "nan"), ("weight", "1e999"), ("max_running_jobs", "1.5")])
def test_limits_that_are_no_numbers_are_refused(web: Browser, field: str, value: str):
    assert f"{field}: '{value}' must be" in answer_to(web, "/ui/admin/queues/default", {field: value}, 422).text


def test_a_webhook_is_made_changed_tested_and_sent_again(web: Browser):
    fields = {"url": "https://a.example/hook", "description": CANARY, "event_types": ["FAILED", "COMPLETED"]}
    secret = next(
        word for word in answer_to(web, "/ui/admin/webhooks", fields).text.split() if word.startswith("whsec_")
    )
    hook = one_id(web, Webhook.id)
    path = f"/ui/admin/webhooks/{hook}"
    page = web.get(path)
    assert secret not in page.html
    assert CANARY not in page.html
    assert page.html.count("checked") == 3  # on, and two events

    assert "on its way" in web.act(f"{path}/test")
    with web.api.db.write() as session:
        session.execute(update(WebhookDelivery).values(state="given_up", problem=CANARY, tries=5))
    delivery = one_id(web, WebhookDelivery.id)
    assert "webhook.test" in web.get(f"{path}?state=given_up").text
    assert "Nothing was sent that is delivered" in web.get(f"{path}?state=delivered").text
    assert "a test event for this webhook" in web.get(f"{path}/deliveries/{delivery}").text
    web.act(f"{path}/deliveries/{delivery}/redeliver")
    with web.api.db.read() as session:
        assert session.scalar(select(func.count()).select_from(WebhookDelivery)) == 2

    web.act(path, {"url": "https://b.example/hook"})
    with web.api.db.read() as session:
        row = session.get_one(Webhook, hook)
        assert (row.url, row.description, row.event_types, row.is_active) == ("https://b.example/hook", "", [], False)
    web.act(f"{path}/delete")
    assert actions(web, hook) == [f"webhook.{verb}" for verb in ("create", "test", "redeliver", "patch", "delete")]


def test_emails_have_a_form_of_their_own_where_there_is_a_mail_server(sqlite_url: str, tmp_path: Path, web: Browser):
    assert "by email" not in web.get("/ui/admin/webhooks").text
    wanted = {"format": "email", "recipients": "ana@example.org, bo@example.org"}
    assert "TRAINYARD_SMTP_HOST" in answer_to(web, "/ui/admin/webhooks", wanted, 400).text
    smtp = {"TRAINYARD_SMTP_HOST": "mail.internal", "TRAINYARD_SMTP_SENDER": "t@example.org"}
    (tmp_path / "mail").mkdir()
    sender = Browser(Api(web.api.db, tmp_path / "mail", TRAINYARD_WEB_ENABLED="true", **smtp))
    sender.sign_in(sender.api.key)
    assert "of example.org" in sender.get("/ui/admin/webhooks").text
    made = answer_to(sender, "/ui/admin/webhooks", wanted).text
    assert "sent as emails to ana@example.org, bo@example.org" in made
    assert "secret" not in made

    hook = one_id(sender, Webhook.id)
    page = sender.get(f"/ui/admin/webhooks/{hook}")
    assert page.fields["recipients"] == "ana@example.org, bo@example.org"
    assert not {"url", "secret"} & page.fields.keys()
    sender.act(f"/ui/admin/webhooks/{hook}", {"recipients": "cy@example.org", "is_active": "true"})
    assert "cy@example.org" in sender.get("/ui/admin/webhooks").text
    assert "recipients.0" in answer_to(sender, f"/ui/admin/webhooks/{hook}", {"recipients": "x@evil.example"}, 400).text


def test_the_audit_log_is_filtered_as_the_form_sends_it(web: Browser):
    web.act("/ui/admin/queues", {"name": "night"})

    # Empty fields as well, as browsers do.
    page = web.get("/ui/admin/audit?action=queue&actor=&target=&project=&outcome=&after=2020-01-01T00%3A00&before=")

    assert "queue.create" in page.text
    assert "session.create" not in page.text
    assert "No entry matches" in web.get("/ui/admin/audit?action=queue&before=2020-01-01T00%3A00").text
    assert "must be a time" in web.get("/ui/admin/audit?after=yesterday", 422).text
    web.get("/ui/admin/audit?who=me", 422)


def test_pages_of_the_audit_log_continue_with_the_same_filters(web: Browser):
    for number in range(3):
        web.act("/ui/admin/queues", {"name": f"queue-{number}"})

    web.get("/ui/admin/queues")
    names = []
    path = "/ui/admin/audit?action=queue&actor=&page_size=1"
    while path:
        page = web.get(path)
        names += [word for word in page.text.split() if word.startswith("queue-")]
        path = next((link for link in page.links if "page_token=" in link), "")

    assert names == ["queue-2", "queue-1", "queue-0"]


def test_an_audit_entry_has_its_page(web: Browser):
    web.act("/ui/admin/projects", {"name": "vision", "description": CANARY})
    web.act("/ui/admin/projects/vision", {"description": "pictures"})
    entry = one_id(web, AuditEntry.id, action="project.patch")

    page = web.get(f"/ui/admin/audit/{entry}")

    assert '"description": "pictures"' in page.text
    web.get("/ui/admin/audit/aud_missing", 404)


def test_the_audit_log_is_exported_with_its_filters(web: Browser):
    web.act("/ui/admin/queues", {"name": "night"})
    with web.api.db.write() as session:
        session.execute(update(AuditEntry).where(AuditEntry.target == "night").values(message="=1+1"))

    answer = web.client.get("/ui/admin/audit/export?form=csv&action=queue&actor=")
    lines = web.client.get("/ui/admin/audit/export?form=jsonl&action=queue").get_data(as_text=True).splitlines()

    head, row = answer.get_data(as_text=True).splitlines()
    assert head.startswith("id,at,project,actor,action,target")
    assert "queue.create,night,done,'=1+1," in row
    assert answer.headers["Content-Disposition"] == 'attachment; filename="audit.csv"'
    assert [json.loads(line)["message"] for line in lines] == ["=1+1"]


def test_an_administrator_ends_the_sign_in_of_another_key(admin: Browser, member: Browser):
    row = one_id(admin, ApiKey.id, role="user")
    sign_in = one_id(admin, WebSession.id, key_id=row)
    assert "this one" in admin.get("/ui/admin/sign-ins").text

    admin.act(f"/ui/admin/sign-ins/{sign_in}/end")

    assert member.client.get("/ui/jobs").status_code == 303
    admin.get("/ui/jobs")
    assert actions(admin, sign_in) == ["session.create", "session.delete"]
    assert admin.post(f"/ui/admin/sign-ins/{sign_in}/end").status_code == 404


def test_names_of_super_admins_are_not_told_to_a_project(web_api: Api, admin: Browser):
    chief = Browser(web_api)
    chief.sign_in(web_api.make_key(Role.SUPER_ADMIN, None, name="chief"))
    chief.act("/ui/admin/projects/default", {"description": "changed"})

    assert "chief" not in admin.get("/ui/admin/audit?action=project").html
    assert "chief" in chief.get("/ui/admin/audit?action=project").html


def test_a_webhook_says_that_the_hour_of_its_project_is_full_until_it_is_over(admin: Browser) -> None:
    answer_to(admin, "/ui/admin/webhooks", {"url": "https://ours.example/hook"})
    for minutes, is_said in ((30, True), (-1, False)):
        with admin.api.db.write() as session:
            session.execute(update(Webhook).values(rests_until=utc_now() + timedelta(minutes=minutes)))
        assert ("all emails of an hour" in admin.get("/ui/admin/webhooks").text) == is_said
