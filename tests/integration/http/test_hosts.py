"""The host of ports of jobs is none of the API's."""

from pathlib import Path

import pytest

from app.database.engine import Database
from tests.systems.apps import Api


@pytest.mark.parametrize("path", ["/health", "/v1/jobs", "/ui/login", "/nothing"])
@pytest.mark.parametrize("host", ["jobs.localhost", "JOBS.localhost:8000", "web-1.jobs.localhost"])
def test_nothing_is_answered_at_the_host_of_ports(database: Database, tmp_path: Path, path: str, host: str) -> None:
    api = Api(database, tmp_path, TRAINYARD_GATEWAY_PORTS_URL="http://jobs.localhost:8001")
    client = api.app.test_client()

    answer = client.get(path, headers={"Host": host, "Authorization": f"Bearer {api.key}"})
    elsewhere = client.get("/health", headers={"Host": "localhost"})
    api.close()

    assert answer.status_code == 421
    assert answer.json is not None
    assert answer.json["error"]["code"] == "MISDIRECTED"
    assert elsewhere.status_code == 200
