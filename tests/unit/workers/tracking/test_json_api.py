"""Calls to a tracking server: what it says is shown without the token, and one call has its own limit."""

import base64
import socket
import time
from contextlib import closing

import pytest

from tests.doubles.mlflow import FakeMlflow, Json, Refused, running_mlflow
from workers.tracking.failures import NotDelivered
from workers.tracking.json_api import JsonApi, ServerRefuses

TOKEN = "t0ken" * 20


def api_of(url: str, username: str = "", *, call_seconds: float = 30.0) -> JsonApi:
    api = JsonApi(base=url, username=username, token=TOKEN, allow=("127.0.0.1",), call_seconds=call_seconds)
    api.limit(30)
    return api


class Echoing(FakeMlflow):
    """It repeats what it was asked with."""

    def answer(self, path: str, asked: Json) -> Json:
        raise Refused(400, asked["code"], asked["message"])


@pytest.mark.parametrize(
    ("code", "message"), [(TOKEN, ""), ("", "x" * 290 + TOKEN), ("", f"who is {TOKEN}?"), (f"c{TOKEN}", TOKEN)]
)
def test_echoed_token_is_not_shown_even_in_part(code: str, message: str) -> None:
    with running_mlflow(kind=Echoing) as server, pytest.raises(ServerRefuses) as caught:
        api_of(server.url).post("any", {"code": code, "message": message})

    assert TOKEN[:5] not in caught.value.message + caught.value.code


@pytest.mark.parametrize("padding", ["", "="])
def test_echoed_login_is_not_shown(padding: str) -> None:
    login = base64.b64encode(f"me:{TOKEN}".encode()).decode().rstrip("=")
    with running_mlflow(kind=Echoing) as server, pytest.raises(ServerRefuses) as caught:
        api_of(server.url, "me").post("any", {"code": "", "message": f"{'x' * 280} Basic {login}{padding}"})

    assert login[:5] not in caught.value.message


def test_call_ends_by_its_own_limit_and_by_that_of_the_round() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        began = time.monotonic()
        with pytest.raises(NotDelivered, match="in time"):
            api_of(url, call_seconds=0.05).get("any", {})
        api = api_of(url)
        api.limit(0.05)
        with pytest.raises(NotDelivered, match="in time"):
            api.get("any", {})

    assert time.monotonic() - began < 15
