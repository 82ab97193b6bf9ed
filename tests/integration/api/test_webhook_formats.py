"""The forms in which receivers of webhooks read events."""

import pytest

from tests.systems.apps import Api

URL = "https://receiver.example/hook"


def test_format_is_shown_and_can_be_changed(sqlite_api: Api) -> None:
    made = sqlite_api.data(sqlite_api.post("/v1/webhooks", {"url": URL, "format": "slack"}), 201)
    other = sqlite_api.data(sqlite_api.post("/v1/webhooks", {"url": URL}), 201)

    changed = sqlite_api.data(sqlite_api.call("PATCH", f"/v1/webhooks/{made['webhook_id']}", json={"format": "teams"}))

    assert (made["format"], changed["format"], other["format"]) == ("slack", "teams", "json")


@pytest.mark.parametrize("name", ["xml", "email", ""])
def test_other_format_is_refused(sqlite_api: Api, name: str) -> None:
    problem = sqlite_api.problem(sqlite_api.post("/v1/webhooks", {"url": URL, "format": name}), 422)

    assert problem["details"][0]["field"] == "format"


def test_email_is_refused_with_the_way_out(sqlite_api: Api) -> None:
    problem = sqlite_api.problem(sqlite_api.post("/v1/webhooks", {"url": URL, "format": "email"}), 422)

    assert "emails are not sent" in problem["message"]
