"""OpenAI's own client, on an application of this process."""

from collections.abc import Callable, Iterable
from typing import Any

import httpx2
import openai
import pytest

from tests.systems.apps import Api

Wsgi = Callable[[dict[str, Any], Any], Iterable[bytes]]


class Connection(httpx2.BaseTransport):
    """Sends requests to an application, and loses the answers to the next ``losing`` ones."""

    def __init__(self, application: Wsgi) -> None:
        self._inner = httpx2.WSGITransport(app=application, raise_app_exceptions=True)
        self.losing = 0
        self.sent: list[httpx2.Request] = []

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        self.sent.append(request)
        answer = self._inner.handle_request(request)
        answer.read()
        if self.losing:
            self.losing -= 1
            raise httpx2.ReadError("the connection was cut")
        return answer


def client_of(api: Api, monkeypatch: pytest.MonkeyPatch, **more: Any) -> tuple[openai.OpenAI, Connection]:
    """The client of the application's super admin; it does not wait before it sends a request again."""
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.001)
    monkeypatch.setattr("openai._base_client.MAX_RETRY_DELAY", 0.001)
    connection = Connection(api.app.wsgi_app)
    http_client = httpx2.Client(transport=connection)
    options = {"api_key": api.key, "base_url": "http://localhost/v1", "http_client": http_client, **more}
    return openai.OpenAI(**options), connection
