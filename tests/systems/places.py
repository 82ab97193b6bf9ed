"""Real servers that hold the demo's files for jobs and take their results: web, hub, and S3 as moto speaks it."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import boto3
from moto.server import ThreadedMotoServer

from tests.doubles.hub import OWNER, TOKEN, Hub, running_hub

BUCKET = "trainyard-examples"
KEY = SECRET = "testing"
REPOSITORY = f"{OWNER}/docstrings"
EXAMPLES = Path(__file__).parents[2] / "examples"


@dataclass(frozen=True)
class Web:
    url: str
    asked: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class S3:
    url: str
    client: Any

    def files(self, prefix: str) -> dict[str, bytes]:
        """Content by the name below the prefix."""
        listed = self.client.list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", [])
        keys = [each["Key"] for each in listed]
        return {key.removeprefix(prefix): self.client.get_object(Bucket=BUCKET, Key=key)["Body"].read() for key in keys}


@dataclass(frozen=True)
class Places:
    """Everywhere that the documents of examples/jobs read from and write to."""

    assets: Path
    web: Web
    s3: S3
    hub: Hub

    @property
    def names(self) -> dict[str, str]:
        """What the placeholders of the documents stand for."""
        return {
            "ASSETS": str(self.assets),
            "EXAMPLES": str(EXAMPLES),
            "HTTP": self.web.url,
            "BUCKET": BUCKET,
            "REPOSITORY": REPOSITORY,
        }

    @property
    def settings(self) -> dict[str, str]:
        """What an installation needs to reach them."""
        return {
            "TRAINYARD_STORAGE_ROOTS": f"{self.assets}:{EXAMPLES}",
            "TRAINYARD_FETCH_ALLOW": "127.0.0.1",
            "TRAINYARD_FETCH_S3_ENDPOINT": self.s3.url,
            "TRAINYARD_FETCH_S3_KEY": KEY,
            "TRAINYARD_FETCH_S3_SECRET": SECRET,
            "HF_ENDPOINT": self.hub.url,
            "HF_TOKEN": TOKEN,
            "HF_HUB_DISABLE_XET": "1",
        }


@contextmanager
def running_places(assets: Path) -> Iterator[Places]:
    """All of them, while the block runs."""
    with running_web(assets) as web, running_s3(assets) as s3, running_hub() as hub:
        yield Places(assets, web, s3, hub)


@contextmanager
def running_web(directory: Path) -> Iterator[Web]:
    """The files of a directory by HTTP, while the block runs."""

    class Handler(SimpleHTTPRequestHandler):
        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            web.asked.append(f"{self.command} {self.path} {code}")

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(directory)))
    web = Web(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield web
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def running_s3(assets: Path) -> Iterator[S3]:
    """A bucket with the demo's model below ``model/`` and its Parquet file below ``data/``."""
    logging.getLogger("werkzeug").setLevel(logging.WARNING)  # it tells every request
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    client = boto3.client(
        "s3", endpoint_url=url, aws_access_key_id=KEY, aws_secret_access_key=SECRET, region_name="us-east-1"
    )
    try:
        client.create_bucket(Bucket=BUCKET)
        for path in [*(assets / "model").iterdir(), assets / "functions.parquet"]:
            folder = "data" if path.suffix == ".parquet" else "model"
            client.upload_file(str(path), BUCKET, f"{folder}/{path.name}")
        yield S3(url, client)
    finally:
        client.close()
        server.stop()
