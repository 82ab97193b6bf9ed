"""The server of the commands: a small real HTTP server, whose answers a test scripts."""

from collections.abc import Iterator

import pytest

from tests.doubles.scripted_server import ScriptedServer, running


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedServer]:
    with running() as server:
        monkeypatch.setenv("TRAINYARD_URL", server.url)
        monkeypatch.setenv("TRAINYARD_API_KEY", "the-key")
        yield server
