"""Images of jobs are looked for in their registry before a device is taken."""

import shutil
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from app.domain.spec.model import JobDocument
from app.domain.spec.secrets import take_secrets
from config.settings import Settings, load_settings
from tests.builders.factories import make_document
from tests.systems import images
from workers.images.image_tools import layers_bytes
from workers.prepare.image_preflight import inspect_image


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """A repository of a private registry that has an image of tag v1, and that image's digest."""
    directory = tmp_path_factory.mktemp("registry")
    digest = images.make_image(directory / "image")
    with images.registry(directory / "private", private=True) as host:
        images.push(directory / "image", f"{host}/team/tool:v1", images.LOGIN)
        yield f"{host}/team/tool", digest


def settings_for(directory: Path, host: str, logins: str | None = None, **variables: str) -> Settings:
    environment = {
        "TRAINYARD_DATA_DIR": str(directory / "data"),
        "TRAINYARD_IMAGES_SOURCES": host,
        "TRAINYARD_IMAGES_PLAIN_HTTP": host,
        **variables,
    }
    if logins is not None:
        (directory / "red.json").write_text(logins)
    return load_settings({**environment, "TRAINYARD_IMAGES_AUTH_FILE": str(directory / "{project}.json")})


def report(
    settings: Settings, reference: str, *, logins: Sequence[dict[str, str]] = (), **image: Any
) -> dict[str, Any]:
    framework = {"type": "CUSTOM", "custom_command": ["true"]}
    given = {"registry_logins": [*logins]} if logins else {}
    document = make_document(
        training_config={"base_model": {"model_id": "none"}, "framework": framework},
        resource_config={"gpu_count": 1, "image": {"reference": reference, **image}, **given},
    )
    stored, secrets = take_secrets(JobDocument.from_json(document))
    return inspect_image(settings, "red", stored, secrets, seconds=30)


def login(registry: str, password: str = images.PASSWORD) -> dict[str, str]:
    return {"registry": registry, "username": images.USER, "password": password}


def test_image_that_the_registry_has_is_named_with_its_digest(tmp_path: Path, image: tuple[str, str]) -> None:
    name, digest = image
    host = name.partition("/")[0]
    settings = settings_for(tmp_path, host, images.logins(host))

    assert report(settings, f"{name}:v1") == {"image": {"reference": f"{name}:v1", "digest": digest}}
    assert report(settings, f"{name}@{digest}")["image"]["digest"] == digest
    assert list((tmp_path / "data" / "run").rglob("*.json")) == []


def test_image_with_too_large_layers_fails_the_job(tmp_path: Path, image: tuple[str, str]) -> None:
    name, _ = image
    host = name.partition("/")[0]
    settings = settings_for(tmp_path, host, images.logins(host), TRAINYARD_IMAGES_MAX_BYTES="1000")

    (error,) = report(settings, f"{name}:v1")["errors"]

    assert error["error_type"] == "INVALID_CONFIG"
    assert "takes more than 1000 bytes" in error["message"]
    assert "TRAINYARD_IMAGES_MAX_BYTES" in error["message"]


_ODD = ["", "[]", "5", '{"layers": 5}', '{"layers": [{"size": null}]}', '{"manifests": []}']
_ODD += ['{"layers": [{"size": Infinity}]}', '{"layers": [{"size": 1e999}]}', '{"layers":' + "[" * 100_000]


@pytest.mark.parametrize("text", _ODD, ids=range(len(_ODD)))
def test_manifest_without_sizes_is_left_to_the_node(text: str) -> None:
    assert layers_bytes(text.encode()) == 0
    assert layers_bytes(b'{"layers": [{"size": 5}, {"size": -9}, {"size": 7}]}') == 12


def test_images_of_roles_are_asked_for_one_after_the_other(tmp_path: Path, image: tuple[str, str]) -> None:
    name, digest = image
    host = name.partition("/")[0]
    settings = settings_for(tmp_path, host, images.logins(host))

    def report_of(*references: str, seconds: float = 30) -> dict[str, Any]:
        given = make_document(
            training_config={"base_model": {"model_id": "none"}, "framework": {"type": "CUSTOM"}}, resource_config={}
        )
        given["tasks"] = [
            {"role": f"r{n}", "resource_config": {"image": {"reference": each}}} for n, each in enumerate(references)
        ]
        return inspect_image(settings, "red", JobDocument.from_json(given), {}, seconds=seconds)

    both = report_of(f"{name}:v1", f"{name}@{digest}", f"{name}:v1")
    assert both == {"images": [{"reference": each, "digest": digest} for each in (f"{name}:v1", f"{name}@{digest}")]}
    (error,) = report_of(f"{name}:v1", f"{name}:v2")["errors"]
    assert f"tasks.1.resource_config.image.reference: there is no image {name}:v2" in error["message"]
    in_time = report_of(f"{name}:v1", f"{name}@{digest}", seconds=0)
    assert in_time["left_out"][-1] == f"no time was left to ask for {name}@{digest}"


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        ("NAME:v2", "there is no image NAME:v2"),
        ("NAME@sha256:" + "0" * 64, "there is no image NAME@sha256:0000"),
        ("NAME-other:v1", "there is no image NAME-other:v1"),
    ],
)
def test_image_that_the_registry_lacks_fails_the_job(
    tmp_path: Path, image: tuple[str, str], reference: str, says: str
) -> None:
    name, _ = image
    host = name.partition("/")[0]
    settings = settings_for(tmp_path, host, images.logins(host))

    (error,) = report(settings, reference.replace("NAME", name))["errors"]

    assert error["error_type"] == "INVALID_CONFIG"
    assert f"resource_config.image.reference: {says.replace('NAME', name)}" in error["message"]


def test_login_that_the_registry_refuses_fails_the_job_and_one_that_only_nodes_may_have_does_not(
    tmp_path: Path, image: tuple[str, str]
) -> None:
    name, _ = image
    host = name.partition("/")[0]

    unknown = report(settings_for(tmp_path, host), f"{name}:v1")
    wrong = report(settings_for(tmp_path, host, '{"auths": {}}'), f"{name}:v1")

    assert "does not let this project read" in unknown["left_out"][0]
    assert "does not let this project read" in wrong["errors"][0]["message"]


def test_login_of_the_job_takes_the_place_of_the_operators(tmp_path: Path, image: tuple[str, str]) -> None:
    name, digest = image
    host = name.partition("/")[0]
    none, operators = settings_for(tmp_path, host), settings_for(tmp_path, host, images.logins(host))
    wrong = report(operators, f"{name}:v1", logins=[login(host, "not opensesame")])

    assert report(none, f"{name}:v1", logins=[login(host)])["image"]["digest"] == digest
    both = [login(host, "not opensesame"), login(name)]  # the longest that fits
    assert report(none, f"{name}:v1", logins=both)["image"]["digest"] == digest
    assert f"the job's own login is for {host} (resource_config.registry_logins)" in wrong["errors"][0]["message"]
    assert "not opensesame" not in str(wrong)


def test_registry_that_does_not_answer_is_left_to_the_nodes(tmp_path: Path) -> None:
    left = report(settings_for(tmp_path, "127.0.0.1:9"), "127.0.0.1:9/team/tool:v1")

    assert "127.0.0.1:9/team/tool:v1 can't be fetched" in left["left_out"][0]


def test_registry_that_jobs_may_not_use_is_never_asked(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as private:
        private.setblocking(False)
        host = f"127.0.0.1:{private.getsockname()[1]}"
        settings = settings_for(tmp_path, "registry.example.com")
        left = report(settings, f"{host}/team/tool:v1", logins=[login(host)])
        with pytest.raises(BlockingIOError):
            private.accept()

    (why,) = left["left_out"]
    assert why.startswith("resource_config.image.reference: images are used from registry.example.com, and")


def test_registry_is_not_asked_for_what_a_node_must_have_or_reads_from_its_disk(tmp_path: Path) -> None:
    settings = settings_for(tmp_path, "127.0.0.1:9")

    assert report(settings, "127.0.0.1:9/team/tool:v1", pull_policy="never") == {}
    assert report(settings, "oci:/srv/image") == {}


def test_coordinator_without_the_tool_or_a_sandbox_leaves_it_to_the_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, image: tuple[str, str]
) -> None:
    host = image[0].partition("/")[0]
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "skopeo").symlink_to(str(shutil.which("skopeo")))
    monkeypatch.setenv("PATH", str(programs))

    confined = report(settings_for(tmp_path, host), f"{image[0]}:v1")
    monkeypatch.setenv("PATH", str(tmp_path))
    toolless = report(settings_for(tmp_path, host), f"{image[0]}:v1")

    assert "asks no registry: bubblewrap" in confined["left_out"][0]
    assert toolless["left_out"] == ["this coordinator asks no registry: skopeo is not installed"]
