"""A finished model, and the places that a job may have it published to."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

from config.settings import load_settings
from tests.doubles.hub import Hub, running_hub
from tests.doubles.shares import TOKEN, Share, running_share
from tests.systems.places import BUCKET, KEY, S3, SECRET
from workers.fetching.filesystems import filesystem, service
from workers.publishing.copying import MARKER, PublishTarget
from workers.publishing.local import LocalTarget
from workers.publishing.objects import ObjectTarget
from workers.publishing.orders import PublishedFile, PublishOrder
from workers.publishing.web import WebTarget

JOB = "job-01980000-0000-7000-8000-000000000001"
FILES = {
    "model.safetensors": bytes(range(256)) * 100,
    "config.json": b'{"model_type": "tiny"}',
    "README.md": b"---\nlicense: mit\n---\n# tiny\n",
    "sub/tokenizer.json": b"{}",
    "empty.txt": b"",
}


def make_order(directory: Path, files: dict[str, bytes] | None = None, *, job_id: str = JOB) -> PublishOrder:
    """A model on the disk, and the order to publish it."""
    contents = FILES if files is None else files
    for path, data in contents.items():
        directory.joinpath(path).parent.mkdir(parents=True, exist_ok=True)
        directory.joinpath(path).write_bytes(data)
    return PublishOrder(
        job_id=job_id,
        job_name="tiny",
        source=directory,
        files=tuple(
            PublishedFile(path=path, size_bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
            for path, data in sorted(contents.items())
        ),
        weight_files=("model.safetensors",),
    )


@pytest.fixture
def order(tmp_path: Path) -> PublishOrder:
    return make_order(tmp_path / "model")


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub that child processes find by their environment; no user is logged in."""
    with running_hub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
        monkeypatch.setenv("HF_TOKEN_PATH", "/nonexistent/token")
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield hub


@pytest.fixture
def share() -> Iterator[Share]:
    with running_share() as share:
        yield share


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    client = boto3.client(
        "s3", endpoint_url=url, aws_access_key_id=KEY, aws_secret_access_key=SECRET, region_name="us-east-1"
    )
    client.create_bucket(Bucket=BUCKET)
    yield S3(url, client)
    client.close()
    server.stop()


@pytest.fixture(scope="session", autouse=True)
def bucket_files(s3_server: S3) -> Iterator[Any]:
    """The file system that a node would use; one for all, because its threads last as long as the process."""
    settings = load_settings(
        {
            "TRAINYARD_FETCH_S3_ENDPOINT": s3_server.url,
            "TRAINYARD_FETCH_S3_KEY": KEY,
            "TRAINYARD_FETCH_S3_SECRET": SECRET,
        }
    )
    files = filesystem("s3", service("s3", settings.fetch))
    files.ls("")
    yield files
    files.close_session(files.loop, files.s3)


@pytest.fixture
def s3(s3_server: S3) -> S3:
    """The session's bucket, emptied."""
    for key in s3_server.files(""):
        s3_server.client.delete_object(Bucket=BUCKET, Key=key)
    return s3_server


@dataclass(frozen=True)
class Spot:
    """One kind of place, with a way to read it and to put something there unnoticed."""

    make: Callable[[str], PublishTarget]  # by the job's id
    files: Callable[[], Mapping[str, bytes]]
    put: Callable[[str, bytes], object]

    @property
    def place(self) -> PublishTarget:
        return self.make(JOB)

    def model(self, folder: str = "") -> dict[str, bytes]:
        """Everything but the marker."""
        prefix = f"{folder}/" if folder else ""
        found = {path.removeprefix(prefix): data for path, data in self.files().items() if path.startswith(prefix)}
        return {path: data for path, data in found.items() if MARKER not in path}

    def marker(self, folder: str = "") -> Any:
        return json.loads(self.files()[f"{folder}/{MARKER}" if folder else MARKER])


def tree(directory: Path) -> dict[str, bytes]:
    return {str(p.relative_to(directory)): p.read_bytes() for p in directory.rglob("*") if p.is_file()}


def put_file(directory: Path, path: str, data: bytes) -> None:
    directory.joinpath(path).parent.mkdir(parents=True, exist_ok=True)
    directory.joinpath(path).write_bytes(data)


@pytest.fixture
def local(tmp_path: Path) -> Spot:
    target = tmp_path / "a" / "b" / "out"
    return Spot(lambda job: LocalTarget(str(target), job), lambda: tree(target), lambda p, d: put_file(target, p, d))


@pytest.fixture
def bucket(s3: S3, bucket_files: Any) -> Spot:
    return Spot(
        lambda job: ObjectTarget(bucket_files, f"{BUCKET}/models/out", job),
        lambda: s3.files("models/out/"),
        lambda path, data: s3.client.put_object(Bucket=BUCKET, Key=f"models/out/{path}", Body=data),
    )


@pytest.fixture
def drive(share: Share) -> Spot:
    return Spot(
        lambda job: WebTarget(f"{share.url}/mine/out", {"Authorization": f"Bearer {TOKEN}"}),
        lambda: share.below("mine/out"),
        lambda path, data: share.files.update({f"/shares/mine/out/{path}": data}),
    )


@pytest.fixture(params=["local", "bucket", "drive"])
def spot(request: pytest.FixtureRequest) -> Spot:
    found: Spot = request.getfixturevalue(request.param)
    return found
