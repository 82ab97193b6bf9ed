"""Webhooks over HTTP: making, looking, changing, trying out and sending again, each project for itself."""

from datetime import timedelta
from typing import Any

import pytest

from app.domain.webhooks import EVENT_NAMES
from app.models import AuditEntry, Webhook, WebhookDelivery
from app.models.base import utc_now
from app.security.permissions import Role
from app.security.secrets import SecretBox
from app.services.webhooks import deliveries
from tests.systems.apps import SECRET_KEY, Api

URL = "https://receiver.example/hook"
SHOWN = {"webhook_id", "project", "url", "description", "event_types", "format", "recipients", "is_active"} | {
    "failures",
    "rests_until",
    "created_by",
    "created_at",
}


def make(api: Api, **fields: Any) -> dict[str, Any]:
    key = fields.pop("key", None)
    made: dict[str, Any] = api.data(api.post("/v1/webhooks", {"url": URL, **fields}, key=key), 201)
    return made


def finish(api: Api, hook_id: str, *, days_ago: int = 0) -> None:
    """As if everything on its way had been delivered."""
    with api.db.write() as session:
        for row in session.query(WebhookDelivery).filter_by(webhook_id=hook_id):
            row.state, row.finished_at = "delivered", utc_now() - timedelta(days=days_ago)


# ---- making


def test_new_webhook_shows_its_secret_this_once(api: Api) -> None:
    answer = api.post("/v1/webhooks", {"url": URL, "event_types": ["FAILED", "checkpoint.saved", "FAILED"]})

    made = api.data(answer, 201)
    assert answer.headers["Location"] == f"/v1/webhooks/{made['webhook_id']}"
    assert made["secret"].startswith("whsec_")
    assert len(made["secret"]) > 40
    shown = api.get(answer.headers["Location"])
    assert set(shown) == SHOWN
    assert shown["event_types"] == ["FAILED", "checkpoint.saved"]
    assert (shown["is_active"], shown["failures"], shown["rests_until"]) == (True, 0, None)
    listed = api.call("GET", "/v1/webhooks")
    assert api.data(listed)["webhooks"] == [shown]
    assert made["secret"] not in listed.get_data(as_text=True)


def test_given_secret_is_stored_sealed(api: Api) -> None:
    made = make(api, secret="a-secret-of-my-own")

    assert made["secret"] == "a-secret-of-my-own"
    with api.db.read() as session:
        row = session.get_one(Webhook, made["webhook_id"])
    assert "a-secret" not in row.sealed_secret
    assert SecretBox(SECRET_KEY).open(row.sealed_secret) == {"secret": "a-secret-of-my-own"}


@pytest.mark.both_databases
def test_same_idempotency_key_makes_one_webhook_and_shows_the_same_secret(api: Api) -> None:
    headers = {"Idempotency-Key": "once"}

    first, second = (api.data(api.post("/v1/webhooks", {"url": URL}, headers=headers), 201) for _ in range(2))

    assert first == second
    assert api.get("/v1/webhooks")["total_count"] == 1
    assert api.problem(api.post("/v1/webhooks", {"url": URL + "2"}, headers=headers), 409)["code"] == (
        "IDEMPOTENCY_CONFLICT"
    )


@pytest.mark.parametrize(
    ("body", "code", "field"),
    [
        ({}, 422, "url"),
        ({"url": None}, 422, "url"),
        ({"url": 5}, 422, "url"),
        ({"url": ""}, 422, "url"),
        ({"url": "https://receiver.example/" + "x" * 2048}, 422, "url"),
        ({"url": "gopher://receiver.example/"}, 400, "url"),
        ({"url": "http://127.0.0.1:8000/v1/jobs"}, 400, "url"),
        ({"url": "http://169.254.169.254/latest/meta-data"}, 400, "url"),
        ({"url": "http://[::1]/"}, 400, "url"),
        ({"url": "https://user:password@receiver.example/"}, 400, "url"),
        ({"url": URL, "event_types": ["job.finished"]}, 422, "event_types.0"),
        ({"url": URL, "event_types": "FAILED"}, 422, "event_types"),
        ({"url": URL, "event_types": [None]}, 422, "event_types.0"),
        ({"url": URL, "event_types": ["FAILED"] * 1000}, 422, "event_types"),
        ({"url": URL, "secret": "short"}, 422, "secret"),
        ({"url": URL, "secret": "with spaces in between"}, 422, "secret"),
        ({"url": URL, "secret": "line-one-of-two\nline-two"}, 422, "secret"),
        ({"url": URL, "description": "x" * 256}, 422, "description"),
        ({"url": URL, "is_active": "yes"}, 422, "is_active"),
        ({"url": URL, "events": []}, 422, "events"),
    ],
)
def test_bad_document_names_the_field(sqlite_api: Api, body: dict[str, Any], code: int, field: str) -> None:
    problem = sqlite_api.problem(sqlite_api.post("/v1/webhooks", body), code)

    assert [detail["field"] for detail in problem["details"]] == [field]
    assert sqlite_api.get("/v1/webhooks")["webhooks"] == []


def test_every_documented_name_of_an_event_is_taken(sqlite_api: Api) -> None:
    assert make(sqlite_api, event_types=list(EVENT_NAMES))["event_types"] == sorted(EVENT_NAMES)


def test_project_has_a_bounded_number_of_webhooks(api: Api) -> None:
    with api.db.write() as session:
        session.add_all(
            Webhook(id=f"whk-{number}", project="default", url=URL, event_types=[], sealed_secret="")
            for number in range(20)
        )

    problem = api.problem(api.post("/v1/webhooks", {"url": URL}), 429)

    assert problem["code"] == "QUOTA_EXCEEDED"
    assert problem["retry_after"] > 0
    api.make_key(Role.USER, "other")
    assert make(api, project="other")["project"] == "other"


# ---- looking and changing


def test_webhooks_are_listed_in_pages_of_one_project(api: Api) -> None:
    key = api.make_key(Role.VIEWER, "other")
    ids = [make(api)["webhook_id"] for _ in range(3)]
    foreign = make(api, project="other")["webhook_id"]

    first = api.get("/v1/webhooks?page_size=2&project=default&order_by=created_at")
    rest = api.get(
        f"/v1/webhooks?page_size=2&project=default&order_by=created_at&page_token={first['next_page_token']}"
    )

    assert [hook["webhook_id"] for hook in first["webhooks"] + rest["webhooks"]] == ids
    assert [hook["webhook_id"] for hook in api.get("/v1/webhooks", key=key)["webhooks"]] == [foreign]
    assert api.get("/v1/webhooks")["total_count"] == 4
    assert api.call("GET", "/v1/webhooks?project=default", key=key).status_code == 404


def test_change_keeps_what_it_does_not_name(api: Api) -> None:
    made = make(api, event_types=["FAILED"], description="for us")

    changed = api.data(
        api.call("PATCH", f"/v1/webhooks/{made['webhook_id']}", json={"event_types": [], "is_active": False})
    )

    assert (changed["event_types"], changed["is_active"]) == ([], False)
    assert (changed["url"], changed["description"]) == (URL, "for us")
    assert api.get(f"/v1/webhooks/{made['webhook_id']}") == changed


def test_new_secret_replaces_the_old_one_and_is_not_shown(api: Api) -> None:
    made = make(api)

    answer = api.call("PATCH", f"/v1/webhooks/{made['webhook_id']}", json={"secret": "the-second-secret-of-it"})

    assert set(api.data(answer)) == SHOWN
    with api.db.read() as session:
        sealed = session.get_one(Webhook, made["webhook_id"]).sealed_secret
    assert SecretBox(SECRET_KEY).open(sealed) == {"secret": "the-second-secret-of-it"}


@pytest.mark.parametrize(
    ("change", "wakes"), [({"url": URL + "/2"}, True), ({"is_active": True}, True), ({"description": "x"}, False)]
)
def test_change_that_may_cure_it_ends_its_rest(api: Api, change: dict[str, Any], wakes: bool) -> None:  # noqa: FBT001
    hook_id = make(api)["webhook_id"]
    with api.db.write() as session:
        row = session.get_one(Webhook, hook_id)
        row.failures, row.rests_until = 7, utc_now() + timedelta(minutes=15)

    changed = api.data(api.call("PATCH", f"/v1/webhooks/{hook_id}", json=change))

    assert (changed["failures"] == 0, changed["rests_until"] is None) == (wakes, wakes)


def test_change_to_a_private_address_is_refused(api: Api) -> None:
    hook_id = make(api)["webhook_id"]

    problem = api.problem(api.call("PATCH", f"/v1/webhooks/{hook_id}", json={"url": "http://10.0.0.1/"}), 400)

    assert "TRAINYARD_WEBHOOK_ALLOW" in problem["message"]
    assert api.get(f"/v1/webhooks/{hook_id}")["url"] == URL


@pytest.mark.both_databases
def test_deleted_webhook_is_gone_with_what_was_on_its_way(api: Api) -> None:
    hook_id = make(api)["webhook_id"]
    api.post(f"/v1/webhooks/{hook_id}/test")

    assert api.call("DELETE", f"/v1/webhooks/{hook_id}").status_code == 204

    assert api.call("GET", f"/v1/webhooks/{hook_id}").status_code == 404
    assert api.call("DELETE", f"/v1/webhooks/{hook_id}").status_code == 404
    with api.db.read() as session:
        assert session.query(WebhookDelivery).count() == 0


# ---- deliveries


@pytest.mark.both_databases
def test_submitted_job_is_on_its_way_in_the_same_transaction(api: Api) -> None:
    hook_id = make(api)["webhook_id"]

    job_id = api.submit()

    (row,) = api.get(f"/v1/webhooks/{hook_id}/deliveries")["deliveries"]
    assert (row["event_type"], row["state"], row["tries"]) == ("job.submitted", "waiting", 0)
    assert "payload" not in row
    whole = api.get(f"/v1/webhooks/{hook_id}/deliveries/{row['delivery_id']}")
    (event,) = api.get(f"/v1/jobs/{job_id}/events")["events"]
    sent = whole["payload"]["event"]
    assert {name: sent[name] for name in event} == event
    assert sent["seq"] == 1
    assert (whole["payload"]["job"]["job_id"], whole["payload"]["job"]["status"]) == (job_id, "PENDING")


def test_test_event_is_one_that_no_job_has(api: Api) -> None:
    hook_id = make(api, event_types=["FAILED"])["webhook_id"]

    answer = api.post(f"/v1/webhooks/{hook_id}/test")

    row = api.data(answer, 201)
    whole = api.get(answer.headers["Location"])
    assert (row["event_type"], row["state"]) == ("webhook.test", "waiting")
    assert whole["payload"]["job"] is None
    assert whole["payload"]["event"]["type"] == "webhook.test"
    assert {**row, "payload": whole["payload"]} == whole


def test_same_event_is_sent_again_as_another_delivery(api: Api) -> None:
    hook_id = make(api)["webhook_id"]
    api.submit()
    path = f"/v1/webhooks/{hook_id}/deliveries"
    (old,) = api.get(path)["deliveries"]
    finish(api, hook_id)

    answer = api.post(f"{path}/{old['delivery_id']}/redeliver", headers={"Idempotency-Key": "again"})
    repeated = api.post(f"{path}/{old['delivery_id']}/redeliver", headers={"Idempotency-Key": "again"})

    new = api.data(answer, 201)
    assert api.data(repeated, 201) == new
    assert new["delivery_id"] != old["delivery_id"]
    assert (new["event_id"], new["state"], new["tries"]) == (old["event_id"], "waiting", 0)
    assert api.get(answer.headers["Location"])["payload"] == api.get(f"{path}/{old['delivery_id']}")["payload"]
    assert [row["delivery_id"] for row in api.get(path)["deliveries"]] == [new["delivery_id"], old["delivery_id"]]
    assert [row["delivery_id"] for row in api.get(f"{path}?state=waiting")["deliveries"]] == [new["delivery_id"]]


@pytest.mark.both_databases
def test_deliveries_come_in_pages(api: Api) -> None:
    hook_id = make(api)["webhook_id"]
    ids = [api.data(api.post(f"/v1/webhooks/{hook_id}/test"), 201)["delivery_id"] for _ in range(5)]
    path, found, token = f"/v1/webhooks/{hook_id}/deliveries?page_size=2", [], ""

    for _ in range(3):
        page = api.get(f"{path}&page_token={token}")
        found += [row["delivery_id"] for row in page["deliveries"]]
        token = page["next_page_token"]

    assert found == ids[::-1]
    assert (token, page["total_count"]) == ("", 5)


@pytest.mark.parametrize("action", ["test", "redeliver"])
def test_webhook_that_is_switched_off_is_sent_nothing(api: Api, action: str) -> None:
    hook_id = make(api)["webhook_id"]
    old = api.data(api.post(f"/v1/webhooks/{hook_id}/test"), 201)["delivery_id"]
    api.call("PATCH", f"/v1/webhooks/{hook_id}", json={"is_active": False})
    path = {"test": "test", "redeliver": f"deliveries/{old}/redeliver"}[action]

    problem = api.problem(api.post(f"/v1/webhooks/{hook_id}/{path}"), 409)

    assert problem["code"] == "INVALID_STATE"
    assert "is_active" in problem["message"]


@pytest.mark.both_databases
def test_old_finished_deliveries_are_thrown_away_and_waiting_ones_kept(api: Api) -> None:
    hook_id = make(api)["webhook_id"]
    for days_ago in (31, 29):
        api.post(f"/v1/webhooks/{hook_id}/test")
        finish(api, hook_id, days_ago=days_ago) if days_ago == 31 else None
    api.post(f"/v1/webhooks/{hook_id}/test")

    deliveries.drop_old(api.db, kept_days=30)

    assert [row["state"] for row in api.get(f"/v1/webhooks/{hook_id}/deliveries")["deliveries"]] == ["waiting"] * 2


@pytest.mark.both_databases
def test_what_waits_for_a_webhook_that_is_off_is_given_up_after_a_day(api: Api) -> None:
    on, off = make(api)["webhook_id"], make(api)["webhook_id"]
    with api.db.write() as session:
        for hook_id in (on, off):
            session.add(
                WebhookDelivery(
                    id=f"dlv-{hook_id}"[:64],
                    webhook_id=hook_id,
                    event_id="evt-1",
                    event_type="job.status",
                    payload={},
                    created_at=utc_now() - timedelta(hours=25),
                )
            )
        session.get_one(Webhook, off).is_active = False

    deliveries.drop_old(api.db, kept_days=30)

    found = [api.get(f"/v1/webhooks/{hook_id}/deliveries")["deliveries"][0]["state"] for hook_id in (on, off)]
    assert found == ["waiting", "given_up"]


# ---- who may


def test_webhook_of_another_project_looks_missing(api: Api) -> None:
    hook_id = make(api)["webhook_id"]
    delivery_id = api.data(api.post(f"/v1/webhooks/{hook_id}/test"), 201)["delivery_id"]
    key = api.make_key(Role.ADMIN, "other")
    own = make(api, key=key)["webhook_id"]
    path = f"/v1/webhooks/{hook_id}"

    asked = [
        ("GET", path),
        ("PATCH", path),
        ("DELETE", path),
        ("POST", f"{path}/test"),
        ("GET", f"{path}/deliveries"),
        ("GET", f"{path}/deliveries/{delivery_id}"),
        ("POST", f"{path}/deliveries/{delivery_id}/redeliver"),
        ("GET", f"/v1/webhooks/{own}/deliveries/{delivery_id}"),
        ("POST", f"/v1/webhooks/{own}/deliveries/{delivery_id}/redeliver"),
    ]
    answers = {
        (method, asked_path): api.call(method, asked_path, key=key, json={} if method in ("PATCH", "POST") else None)
        for method, asked_path in asked
    }

    assert {each: answer.status_code for each, answer in answers.items()} == dict.fromkeys(answers, 404)
    assert api.post("/v1/webhooks", {"url": URL, "project": "default"}, key=key).status_code == 404
    assert api.get(path)["url"] == URL


def test_viewer_looks_and_changes_nothing(api: Api) -> None:
    made = make(api)
    path, key = f"/v1/webhooks/{made['webhook_id']}", api.make_key(Role.VIEWER)

    assert api.get(path, key=key)["webhook_id"] == made["webhook_id"]
    assert api.get(f"{path}/deliveries", key=key)["deliveries"] == []
    refused = [("POST", "/v1/webhooks"), ("PATCH", path), ("DELETE", path), ("POST", f"{path}/test")]
    assert {api.call(method, each, key=key, json={}).status_code for method, each in refused} == {403}


def test_changes_leave_lines_in_the_audit_trail_without_secret_or_address(api: Api) -> None:
    made = make(api, url="https://receiver.example/token-in-the-path")
    path = f"/v1/webhooks/{made['webhook_id']}"
    row = api.data(api.post(f"{path}/test"), 201)
    api.post(f"{path}/deliveries/{row['delivery_id']}/redeliver")
    api.call("PATCH", path, json={"secret": "the-second-secret-of-it", "description": "x"})
    api.call("DELETE", path)

    with api.db.read() as session:
        lines = session.query(AuditEntry).filter_by(target=made["webhook_id"]).order_by(AuditEntry.id).all()

    assert [line.action.removeprefix("webhook.") for line in lines] == [
        "create",
        "test",
        "redeliver",
        "patch",
        "delete",
    ]
    assert {line.project for line in lines} == {"default"}
    assert lines[3].data == {"changed": ["description", "secret"]}
    said = str([line.data for line in lines])
    assert "receiver.example" in said
    assert "token-in-the-path" not in said
    assert "secret-of-it" not in said


@pytest.mark.parametrize("path", ["whk-nothing", "%00", "%ff", "x" * 500, "..%2Fjobs"])
def test_unknown_webhook_is_a_404_however_it_is_written(api: Api, path: str) -> None:
    assert api.problem(api.call("GET", f"/v1/webhooks/{path}"), 404)["code"] == "NOT_FOUND"
