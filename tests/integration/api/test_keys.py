"""Keys over HTTP: rotation with a time of grace, expiry, last use, and who may touch whose."""

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.http.slots import StreamPace
from app.models import ApiKey
from app.models.base import utc_now
from app.security.permissions import Role
from app.security.secrets import SecretBox
from app.services.access import api_keys
from tests.systems.apps import SECRET_KEY, Api


def make(api: Api, **body: Any) -> dict[str, Any]:
    made: dict[str, Any] = api.data(api.post("/v1/keys", body), 201)
    return made


def rotate(api: Api, key_id: str, **body: Any) -> dict[str, Any]:
    made: dict[str, Any] = api.data(api.post(f"/v1/keys/{key_id}/rotate", body), 201)
    return made


def status(api: Api, key: str) -> int:
    return api.call("GET", "/v1/jobs", key=key).status_code


def move(api: Api, key_id: str, **columns: Any) -> None:
    """Behind the API's back, as if time had passed."""
    with api.db.write() as session:
        row = session.get_one(ApiKey, key_id)
        for name, value in columns.items():
            setattr(row, name, value)


def test_a_key_of_role_inference_may_neither_read_nor_change(api: Api) -> None:
    made = make(api, name="app", role="inference")

    for method, path in (("GET", "/v1/jobs"), ("POST", "/v1/jobs"), ("GET", "/v1/keys"), ("GET", "/metrics")):
        problem = api.problem(api.call(method, path, key=made["key"], json={}), 403)
        assert "the role inference lacks it" in problem["message"]


@pytest.mark.both_databases
def test_limits_of_a_key_are_set_changed_and_kept_on_rotation(api: Api) -> None:
    made = make(api, name="app", role="inference", requests_per_minute=60)
    path = f"/v1/keys/{made['key_id']}"
    assert limits(api.get(path)) == (60, None)
    (entry,) = api.get(f"/v1/audit?action=key.create&target={made['key_id']}")["entries"]
    assert entry["data"] == {"role": "inference", "name": "app", "requests_per_minute": 60}

    changed = api.data(api.call("PATCH", path, json={"requests_per_minute": None, "tokens_per_minute": 0}))
    rotated = rotate(api, made["key_id"], grace_seconds=60)

    assert limits(changed) == limits(api.get(f"/v1/keys/{rotated['key_id']}")) == (None, 0)
    caller = api_keys.authenticate(api.db, rotated["key"])
    assert (caller.requests_per_minute, caller.tokens_per_minute) == (None, 0)
    for wrong in ({"requests_per_minute": -1}, {"tokens_per_minute": "many"}, {"role": "admin"}):
        assert api.problem(api.call("PATCH", path, json=wrong), 422)
    other = api.make_key(Role.ADMIN, "other")
    assert api.call("PATCH", path, json={"requests_per_minute": 1}, key=other).status_code == 404
    assert api.call("PATCH", path, json={"requests_per_minute": 1}, key=rotated["key"]).status_code == 403
    api.call("DELETE", path)
    ended = api.data(api.call("PATCH", path, json={"requests_per_minute": 1}))  # its jobs may still run
    assert (limits(ended), bool(ended["revoked_at"])) == ((1, 0), True)


def limits(key: dict[str, Any]) -> tuple[int | None, int | None]:
    return key["requests_per_minute"], key["tokens_per_minute"]


def test_a_key_is_read_by_its_location_without_what_it_is_worth(api: Api) -> None:
    answer = api.post("/v1/keys", {"name": "ci", "role": "viewer"})
    made = api.data(answer, 201)

    read = api.get(answer.headers["Location"])

    assert (read["key_id"], read["name"], read["role"]) == (made["key_id"], "ci", "viewer")
    assert (read["replaced_by"], read["revoked_at"]) == (None, None)
    assert made["key"] not in str(read)
    assert made["secret_key"] not in str(read)


def test_both_keys_are_good_until_the_grace_ends(api: Api) -> None:
    old = make(api, name="ci", role="admin")
    before = utc_now()

    new = rotate(api, old["key_id"], grace_seconds=600)

    assert (status(api, old["key"]), status(api, new["key"])) == (200, 200)
    shown = api.get(f"/v1/keys/{old['key_id']}")
    assert shown["replaced_by"] == new["key_id"]
    ends_at = datetime.fromisoformat(shown["expires_at"])
    assert before + timedelta(seconds=600) <= ends_at <= utc_now() + timedelta(seconds=600)
    move(api, old["key_id"], expires_at=utc_now())
    assert (status(api, old["key"]), status(api, new["key"])) == (401, 200)


def test_without_grace_the_old_key_ends_at_once(api: Api) -> None:
    old = make(api)

    new = rotate(api, old["key_id"], grace_seconds=0)

    assert (status(api, old["key"]), status(api, new["key"])) == (401, 200)
    assert api.get(f"/v1/keys/{old['key_id']}")["revoked_at"]


def test_a_rotation_without_a_body_gives_an_hour(api: Api) -> None:
    old = make(api)

    api.data(api.post(f"/v1/keys/{old['key_id']}/rotate"), 201)

    left = datetime.fromisoformat(api.get(f"/v1/keys/{old['key_id']}")["expires_at"]) - datetime.now(UTC)
    assert timedelta(minutes=59) < left <= timedelta(hours=1)


def test_the_new_key_is_the_same_but_for_its_secrets(api: Api) -> None:
    old = make(api, name="ci", role="viewer", expires_days=10)
    move(api, old["key_id"], created_at=utc_now() - timedelta(days=9), expires_at=utc_now() + timedelta(days=1))

    new = rotate(api, old["key_id"], grace_seconds=30 * 86400)

    shown, before = api.get(f"/v1/keys/{new['key_id']}"), api.get(f"/v1/keys/{old['key_id']}")
    assert [shown[name] for name in ("name", "role", "project")] == ["ci", "viewer", "default"]
    assert {new[name] for name in ("key", "secret_key", "access_key", "key_id")}.isdisjoint(old.values())
    # It lives as long as the old one was made for, and grace never lengthens a life.
    life = datetime.fromisoformat(shown["expires_at"]) - datetime.fromisoformat(shown["created_at"])
    assert abs(life - timedelta(days=10)) < timedelta(minutes=1)
    assert datetime.fromisoformat(before["expires_at"]) - datetime.now(UTC) < timedelta(days=1, minutes=1)


def test_the_new_signing_pair_is_sealed(api: Api) -> None:
    new = rotate(api, make(api)["key_id"])

    with api.db.read() as session:
        row = session.get_one(ApiKey, new["key_id"])
    assert new["secret_key"] not in row.sealed_secret_key
    assert SecretBox(SECRET_KEY).open(row.sealed_secret_key) == {"secret_key": new["secret_key"]}


def test_a_key_is_rotated_once_and_only_while_it_is_good(api: Api) -> None:
    rotated, revoked, expired = make(api), make(api), make(api)
    new = rotate(api, rotated["key_id"])
    api.call("DELETE", f"/v1/keys/{revoked['key_id']}")
    move(api, expired["key_id"], expires_at=utc_now())

    problems = [
        api.problem(api.post(f"/v1/keys/{key['key_id']}/rotate"), 409)["message"] for key in (rotated, revoked, expired)
    ]

    assert new["key_id"] in problems[0]
    assert "revoked or expired" in problems[1]
    assert "revoked or expired" in problems[2]


@pytest.mark.both_databases
def test_a_rotation_that_is_sent_twice_makes_one_key(api: Api) -> None:
    old = make(api)
    request = {"headers": {"Idempotency-Key": "k-1"}}

    first, again = (api.post(f"/v1/keys/{old['key_id']}/rotate", {}, **request) for _ in range(2))

    assert first.json is not None
    assert again.json is not None
    assert first.json["data"] == again.json["data"]
    assert len(api.get("/v1/keys?page_size=100")["keys"]) == 3


@pytest.mark.both_databases
def test_one_of_two_concurrent_rotations_is_made(api: Api) -> None:
    key_id = make(api)["key_id"]
    statuses: list[int] = []
    together = threading.Barrier(2)

    def ask() -> None:
        together.wait()
        statuses.append(api.post(f"/v1/keys/{key_id}/rotate").status_code)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(statuses) == [201, 409]


@pytest.mark.parametrize("grace", [-1, 30 * 86400 + 1, "60", 1.5, True])
def test_an_invalid_grace_is_refused(sqlite_api: Api, grace: Any) -> None:
    key_id = make(sqlite_api)["key_id"]

    problem = sqlite_api.problem(sqlite_api.post(f"/v1/keys/{key_id}/rotate", {"grace_seconds": grace}), 422)

    assert problem["details"][0]["field"] == "grace_seconds"


def test_admin_of_a_project_reaches_no_keys_of_others(api: Api) -> None:
    admin = api.make_key(Role.ADMIN, "team-a")
    theirs = make(api)["key_id"]
    supers = next(key["key_id"] for key in api.get("/v1/keys")["keys"] if key["role"] == "super_admin")

    answers = [
        api.call(method, f"/v1/keys/{key_id}{verb}", key=admin).status_code
        for key_id in (theirs, supers, "key-nothing")
        for method, verb in (("GET", ""), ("DELETE", ""), ("POST", "/rotate"))
    ]

    assert answers == [404] * 9


def test_an_admin_rotates_the_key_that_it_calls_with(api: Api) -> None:
    old = make(api, role="admin")

    new = api.data(api.post(f"/v1/keys/{old['key_id']}/rotate", {"grace_seconds": 0}, key=old["key"]), 201)

    assert (status(api, old["key"]), status(api, new["key"])) == (401, 200)


def test_the_last_use_is_remembered_to_the_minute(api: Api) -> None:
    made = make(api)
    assert api.get(f"/v1/keys/{made['key_id']}")["last_used_at"] is None
    status(api, made["key"])
    used = api.get(f"/v1/keys/{made['key_id']}")["last_used_at"]
    status(api, made["key"])

    assert used is not None
    assert api.get(f"/v1/keys/{made['key_id']}")["last_used_at"] == used
    move(api, made["key_id"], last_used_at=utc_now() - timedelta(minutes=2))
    status(api, made["key"])
    assert api.get(f"/v1/keys/{made['key_id']}")["last_used_at"] >= used


def test_a_revoked_keys_streams_end_within_a_second() -> None:
    pace = StreamPace()

    # Looked at between two waits for news, so both add up; a query is left to spare.
    assert pace.recheck_seconds + pace.poll_seconds <= 0.8
