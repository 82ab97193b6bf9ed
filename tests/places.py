"""Real servers that hold the demo's files for jobs to read: a web server, and S3 as moto speaks it."""

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

BUCKET = "trainyard-examples"
KEY = SECRET = "testing"


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
