"""The API of a test over real HTTP, and clients of it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from werkzeug.serving import make_server

from tests.systems.apps import Api
from trainyard.client import Client


@dataclass
class Served:
    api: Api
    url: str

    def client(self, key: str | None = None, *, project: str = "") -> Client:
        return Client(self.url, key or self.api.key, project=project)


@contextmanager
def serving(api: Api) -> Iterator[Served]:
    server = make_server("127.0.0.1", 0, api.app, threaded=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield Served(api, f"http://127.0.0.1:{server.server_port}")
    server.shutdown()
    thread.join()
    server.server_close()
