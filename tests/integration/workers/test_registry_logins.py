"""Logins that jobs bring for their images: they are sent to registries, and to no other server or job."""

import base64
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from app.domain.lifecycle.states import JobState
from app.domain.spec.image import RegistryLogin
from app.domain.spec.locations.images import parse
from app.domain.spec.model import JobDocument
from app.domain.spec.secrets import take_secrets
from app.host.overlays import lack_of_overlays
from app.security.secrets import SecretBox
from config.images import ImageSettings
from tests.builders.factories import make_document, make_job
from tests.doubles.http_servers import QuietHandler, answering
from tests.systems import images
from tests.systems.apps import SECRET_KEY
from tests.systems.supervising import World
from workers.attempt_failed import AttemptFailed
from workers.images.image_store import ImageStore
from workers.images.image_tools import ImageTools
from workers.sandbox.sandbox import choose_sandbox

PASSWORD = "p@ss/of\\word"  # with characters that addresses encode
LOGIN = RegistryLogin(registry="127.0.0.1", username="team", password=PASSWORD)
BASIC = base64.b64encode(f"team:{PASSWORD}".encode()).decode()
# Searches for the login of images.registry, first where it was planted; no command line has it. Then prints a file.
SEARCHES = """
search() {
  for file in /proc/[0-9]*/environ /proc/[0-9]*/cmdline /proc/[0-9]*/fd/*; do
    case $file in */fd/[012]) continue;; esac
    busybox timeout 1 busybox grep -qsE "$1" "$file" && echo "$file"
  done
  busybox grep -rlsE "$1" /etc /tmp /run "$TRAINYARD_OUTPUT_DIR/.."
}
either='opens[e]same|dGVhbTpvcGVuc2VzYW1[l]'
echo opens''esame > /tmp/planted; search "$either"
rm /tmp/planted; echo removed; search "$either"
cat /text
"""


class _Registry(QuietHandler):
    """A registry for LOGIN whose blobs lie on another host. ``server.asked`` gets path and Authorization."""

    def do_GET(self) -> None:  # noqa: N802 – the base class calls it by this name
        server: Any = self.server
        server.asked.append((self.path, self.headers.get("Authorization")))
        if self.headers.get("Authorization") != f"Basic {BASIC}":
            self.reply(401, b"", None, **{"WWW-Authenticate": 'Basic realm="images"'})
        elif self.path == "/v2/":
            self.reply(200)
        elif "/manifests/" in self.path and server.says:
            self.reply(403, server.says, "application/json")
        elif "/manifests/" in self.path:
            self.reply(200, server.manifest, "application/vnd.oci.image.manifest.v1+json")
            server.manifest = server.later or server.manifest
        else:
            self.reply(307, Location=f"http://localhost:{server.store}{self.path}")


class _Store(QuietHandler):
    """A store to which registries redirect."""

    def do_GET(self) -> None:  # noqa: N802 – the base class calls it by this name
        server: Any = self.server
        server.asked.append((self.path, self.headers.get("Authorization")))
        self.reply(200, (server.layout / "blobs/sha256" / self.path.rpartition(":")[2]).read_bytes())


@contextmanager
def doubles(layout: Path, *, says: bytes = b"") -> Iterator[tuple[Any, Any]]:
    """(registry, store) of the image, or a registry that refuses it with these words."""
    registry: Any = ThreadingHTTPServer(("127.0.0.1", 0), _Registry)
    store: Any = ThreadingHTTPServer(("127.0.0.1", 0), _Store)
    registry.says, registry.later, registry.store = says, b"", store.server_port
    for each in (registry, store):
        each.asked, each.layout = [], layout
    with answering(registry), answering(store):
        yield registry, store


def tools(directory: Path, host: str) -> ImageTools:
    (directory / "work").mkdir()
    return ImageTools(
        sandbox=choose_sandbox(),
        directory=directory / "work",
        data_dir=directory / "data",
        max_bytes=1 << 30,
        until=time.monotonic() + 60,
        login=LOGIN,
        plain_http=(host,),
    )


@pytest.mark.parametrize("names_the_store", [False, True])
def test_password_goes_to_the_registry_and_not_to_where_that_or_the_image_leads(
    tmp_path: Path, *, names_the_store: bool
) -> None:
    digest = images.make_image(tmp_path / "image").partition(":")[2]
    manifest = json.loads((tmp_path / "image/blobs/sha256" / digest).read_text())
    with doubles(tmp_path / "image") as (registry, store):
        host = f"127.0.0.1:{registry.server_port}"
        if names_the_store:
            (layer,) = manifest["layers"]
            layer["mediaType"] = "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip"
            layer["urls"] = [f"http://localhost:{store.server_port}/{layer['digest']}"]
        registry.manifest = json.dumps(manifest).encode()

        layout = tools(tmp_path, host).copy(parse(f"{host}/team/tool:v1"))

    assert (layout / "index.json").is_file()
    assert any(sent == f"Basic {BASIC}" for _, sent in registry.asked)
    assert len(store.asked) == (1 if names_the_store else 2)  # the configuration, and no layer from elsewhere
    assert {sent for _, sent in store.asked} == {None}
    written = b"".join(path.read_bytes() for path in (tmp_path / "work").rglob("*") if path.is_file())
    assert PASSWORD.encode() not in written
    assert BASIC.encode() not in written


def test_password_that_a_registry_sends_back_is_in_no_message(tmp_path: Path) -> None:
    forms = f"denied to {PASSWORD}, {quote(PASSWORD, safe='')}, Basic {BASIC}"
    says = json.dumps({"errors": [{"code": "DENIED", "message": forms}]}).encode()
    with doubles(tmp_path, says=says) as (registry, _):
        host = f"127.0.0.1:{registry.server_port}"

        with pytest.raises(AttemptFailed, match="the job's own login is for 127") as caught:
            tools(tmp_path, host).digest(parse(f"{host}/team/tool:v1"))

    assert "denied to ***, ***, Basic ***" in caught.value.message
    assert "p@ss" not in caught.value.message


def store_of(directory: Path, host: str = "", project: str = "a") -> ImageStore:
    return ImageStore(
        directory=directory / "images",
        data_dir=directory / "data",
        settings=ImageSettings(plain_http=(host,)),
        sandbox=choose_sandbox(),
        project=project,
        login=LOGIN if host else None,
    )


def test_registry_that_answers_with_another_image_the_second_time_gives_none(tmp_path: Path) -> None:
    wanted, other = (images.make_image(tmp_path / name, [("text", name.encode())]) for name in ("wanted", "other"))
    with doubles(tmp_path / "other") as (registry, _):
        host = f"127.0.0.1:{registry.server_port}"
        registry.manifest = (tmp_path / "wanted/blobs/sha256" / wanted.partition(":")[2]).read_bytes()
        registry.later = (tmp_path / "other/blobs/sha256" / other.partition(":")[2]).read_bytes()

        with pytest.raises(AttemptFailed, match="digest"):
            store_of(tmp_path, host).provide(parse(f"{host}/team/tool:v1"), "if_missing")

    assert not list((tmp_path / "images").glob("*/root"))


@pytest.mark.long
def test_layout_gives_the_image_that_lies_in_it_to_its_own_project(tmp_path: Path) -> None:
    layout = tmp_path / "image"
    named = images.make_image(layout, [("text", b"named")])
    written = images.make_image(tmp_path / "other", [("text", b"written")])
    for blob in (tmp_path / "other/blobs/sha256").iterdir():
        (layout / "blobs/sha256" / blob.name).write_bytes(blob.read_bytes())
    claimed = layout / "blobs/sha256" / named.partition(":")[2]
    claimed.write_bytes((layout / "blobs/sha256" / written.partition(":")[2]).read_bytes())
    reference = parse(f"oci:{layout}:v1")

    found = store_of(tmp_path).provide(reference, "always")

    assert f"sha256:{found.digest}" == written
    assert (found.root / "text").read_text() == "written"
    assert store_of(tmp_path).provide(reference, "if_missing") == replace(found, seconds=0.0)
    other = store_of(tmp_path, project="b").provide(reference, "always")
    assert (other.digest, other.root == found.root) == (found.digest, False)


def submit(world: World, reference: str, logins: Sequence[dict[str, str]], command: str) -> str:
    framework = {"type": "CUSTOM", "custom_command": ["sh", "-c", command]}
    asked = make_document(
        training_config={"base_model": {"model_id": "none"}, "framework": framework},
        data_config={"sources": [{"path": str(world.directory / "mine/data.jsonl")}]},
        resource_config={"gpu_count": 1, "image": {"reference": reference}, "registry_logins": [*logins]},
    )
    document, secrets = take_secrets(JobDocument.from_json(asked))
    with world.db.write() as session:
        sealed = SecretBox(world.settings.security.secret_key).seal(secrets)
        job_id = make_job(session, document=document.to_json(), sealed_secrets=sealed).id
    world.take_up(job_id)
    return job_id


@pytest.mark.long
def test_hostile_job_finds_no_password_and_jobs_without_a_login_find_no_image(
    make_world: Callable[..., World], tmp_path: Path
) -> None:
    if lack := lack_of_overlays(tmp_path):
        pytest.skip(f"the kernel mounts no overlay for this user: {lack}")
    with images.registry(tmp_path / "private", private=True) as host:
        world = make_world(
            TRAINYARD_IMAGES_SOURCES=host, TRAINYARD_IMAGES_PLAIN_HTTP=host, TRAINYARD_SECURITY_SECRET_KEY=SECRET_KEY
        )
        images.make_image(tmp_path / "image", [("text", b"private")])
        images.push(tmp_path / "image", f"{host}/team/tool:v1", images.LOGIN)
        login = {"registry": f"{host}/team", "username": images.USER, "password": images.PASSWORD}

        hostile = submit(world, f"{host}/team/tool:v1", [login], SEARCHES)
        assert world.wait_for_end(hostile).state is JobState.COMPLETED, world.describe(hostile)
        refused = submit(world, f"{host}/team/tool:v1", [], "cat /text")  # though the node has it
        assert world.wait_for_end(refused).state is JobState.FAILED, world.describe(refused)

    found = world.log(hostile)
    assert (found[0], found[found.index("removed") :]) == ("/tmp/planted", ["removed", "private"])
    assert "does not let this project read" in str(world.attempt(refused).end_reason)
    for directory, _, names in os.walk(world.data_dir):
        for path in (Path(directory, name) for name in names):
            if path.is_file() and not path.is_symlink():
                assert images.PASSWORD.encode() not in path.read_bytes(), path
