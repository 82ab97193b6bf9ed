"""Paths of sessions at the API: it has no WebSockets, and says where the gateway is."""

from pathlib import Path

import pytest

from app.database.engine import Database
from tests.systems.apps import Api


@pytest.mark.parametrize(
    ("url", "where"), [("https://train.example", "at https://train.example"), ("", "TRAINYARD_GATEWAY_SESSIONS_URL")]
)
def test_the_api_says_where_sessions_are(database: Database, tmp_path: Path, url: str, where: str) -> None:
    api = Api(database, tmp_path, TRAINYARD_GATEWAY_SESSIONS_URL=url)
    try:
        for path in ("/v1/sessions/session-1/stream", "/v1/sessions/"):
            answer = api.app.test_client().get(path)
            assert answer.status_code == 421
            error = answer.get_json()["error"]
            assert error["code"] == "MISDIRECTED"
            assert where in error["message"]
    finally:
        api.close()
