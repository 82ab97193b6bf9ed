"""`GET /v1/usage`: what was asked of models, by key, model and day."""

from datetime import date
from typing import Any

import pytest

from app.security.permissions import Role
from app.services.serving import usage
from app.services.serving.usage import UsageCounts, UsageKey
from tests.builders.factories import make_project
from tests.systems.apps import Api


@pytest.fixture
def used(api: Api) -> Api:
    """Two days, keys and models of one project, and a request of another one."""
    with api.db.write() as session:
        make_project(session, "other")
    for day, key, model, project in (
        (17, "key-1", "support", "default"),
        (17, "key-2", "support", "default"),
        (18, "key-1", "vectors", "default"),
        (18, "key-9", "secret", "other"),
    ):
        where = UsageKey(day=date(2026, 5, day), key_id=key, model=model, project=project, service_id="service-1")
        usage.add(api.db, {where: UsageCounts(requests=2, failures=1, prompt_tokens=30, completion_tokens=4)})
    return api


def rows(api: Api, query: str, *names: str, **request: Any) -> list[tuple[Any, ...]]:
    return [tuple(each[name] for name in names) for each in api.get(f"/v1/usage{query}", **request)["usage"]]


@pytest.mark.both_databases
def test_sums_are_by_what_is_asked_for(used: Api) -> None:
    key = used.make_key(Role.VIEWER)

    assert used.get("/v1/usage", key=key)["usage"] == [
        {
            "day": None,
            "model": None,
            "key_id": None,
            "project": "default",
            "requests": 6,
            "failures": 3,
            "prompt_tokens": 90,
            "completion_tokens": 12,
        }
    ]
    by_model = rows(used, "?group=model&order_by=day", "model", "requests", key=key)
    assert by_model == [("support", 4), ("vectors", 2)]
    by_day = rows(used, "?group=day,key", "day", "key_id", key=key)
    assert by_day == [("2026-05-18", "key-1"), ("2026-05-17", "key-2"), ("2026-05-17", "key-1")]
    since = rows(used, "?group=day&since=2026-05-18&until=2026-05-18", "day", "requests", key=key)
    assert since == [("2026-05-18", 2)]


@pytest.mark.both_databases
def test_pages_are_keyed(used: Api) -> None:
    first = used.get("/v1/usage?group=day&group=model&page_size=2")
    token = first["next_page_token"]
    rest = used.get(f"/v1/usage?group=day&group=model&page_size=2&page_token={token}")

    found = [(each["day"], each["model"]) for each in (*first["usage"], *rest["usage"])]
    assert found == [("2026-05-18", "vectors"), ("2026-05-18", "secret"), ("2026-05-17", "support")]
    assert first["total_count"] == 3


def test_usage_of_others_is_not_shown(used: Api) -> None:
    key = used.make_key(Role.ADMIN)

    assert ("secret",) not in rows(used, "?group=model", "model", key=key)
    used.problem(used.call("GET", "/v1/usage?project=other", key=key), 404)
    assert rows(used, "?group=model&project=other", "model") == [("secret",)]


@pytest.mark.parametrize(
    ("query", "field"), [("group=user", "group"), ("since=17.5.2026", "since"), ("until=2026-02-30", "until")]
)
def test_bad_filters_are_named(sqlite_api: Api, query: str, field: str) -> None:
    problem = sqlite_api.problem(sqlite_api.call("GET", f"/v1/usage?{query}"), 422)

    assert problem["details"][0]["field"].split(".")[0] == field


def test_days_in_the_wrong_order_are_refused_with_both(api: Api) -> None:
    response = api.call("GET", "/v1/usage?since=2026-05-18&until=2026-05-17")

    detail = api.problem(response, 400)["details"][0]
    assert detail["field"] == "until"
    assert detail["message"] == "until (2026-05-17) is before since (2026-05-18); exchange them"
