"""A node's library over real servers: one for HTTP that does what a test says, one for S3, and a hub."""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from moto.server import ThreadedMotoServer

from app.domain.spec.locations.paths import ReadingRules
from config.fetching import CacheSettings, FetchSettings
from tests.doubles.hub import Hub, running_hub
from tests.fetching.web_server import WebServer
from workers.prepare.inputs.input_library import Library

LOOPBACK = ("127.0.0.1",)


@pytest.fixture
def web() -> Iterator[WebServer]:
    with WebServer() as server:
        yield server


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """The hub that libraries and children find by the environment."""
    with running_hub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield hub


@pytest.fixture
def make_library(tmp_path: Path) -> Iterator[Any]:
    """A library of one job; given settings of fetching, and ``cache_bytes``, ``secrets``, ``fetch_bytes``."""
    made: list[Library] = []
    mine = tmp_path / "mine"
    mine.mkdir()

    def make(
        *,
        cache_bytes: int = 1 << 30,
        secrets: dict[str, str] | None = None,
        fetch_bytes: int | None = None,
        **settings: Any,
    ) -> Library:
        rules = ReadingRules(roots=(str(mine),), data_dir=str(tmp_path / "data"), real_path=os.path.realpath)
        library = Library(
            rules=rules,
            cache_dir=tmp_path / "data" / "cache",
            project="ours",
            project_of_job=lambda _: None,
            fetch=replace(FetchSettings(allow=LOOPBACK, stalled_seconds=20.0), **settings),
            cache=CacheSettings(max_bytes=cache_bytes),
            secrets=secrets or {},
            fetch_bytes=fetch_bytes,
        )
        made.append(library)
        return library

    yield make
    for library in made:
        library.close()


@pytest.fixture
def mine(make_library: Any, tmp_path: Path) -> Path:
    """The directory from which jobs may read."""
    return tmp_path / "mine"


@pytest.fixture
def objects(tmp_path: Path) -> Callable[[], list[str]]:
    """Asks for the SHA-256 of everything in the cache."""

    def look() -> list[str]:
        return sorted(path.name for path in (tmp_path / "data/cache/data/objects").glob("??/*"))

    return look


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(s3_server: str) -> Iterator[Any]:
    """An empty bucket named ``data``, and ``bucket.url`` of its server."""
    keys = {"aws_access_key_id": "key", "aws_secret_access_key": "secret", "region_name": "us-east-1"}
    store = boto3.resource("s3", endpoint_url=s3_server, config=Config(retries={"max_attempts": 1}), **keys)
    bucket = store.create_bucket(Bucket="data")
    bucket.url = s3_server
    yield bucket
    bucket.objects.all().delete()
    bucket.delete()
    store.meta.client.close()
