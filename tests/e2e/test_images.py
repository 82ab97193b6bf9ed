"""Images that clients of other systems name, with volumes at the paths they name: made here, of Debian's busybox."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from app.host.overlays import lack_of_overlays
from tests.builders.factories import make_document
from tests.doubles.tls import tls_before
from tests.lazy_imports import lazily_imported
from tests.systems import images
from tests.systems.system import System, wait_for

if TYPE_CHECKING:
    import kubernetes
    import runai
else:
    kubernetes, runai = lazily_imported("kubernetes"), lazily_imported("runai")

pytestmark = [pytest.mark.long, pytest.mark.timeout(200)]

CLUSTER = "71f69d83-ba66-4822-adf5-55ce55efd210"
GROUP = {"group": "ome.io", "version": "v1beta1", "namespace": "default", "plural": "trainingjobs"}


@pytest.fixture
def system(make_system: Callable[..., System], tmp_path: Path) -> Iterator[tuple[System, str]]:
    """A system, and an image of its registry that prints what it is started with."""
    if lack := lack_of_overlays(tmp_path):
        pytest.skip(f"the kernel mounts no overlay for this user: {lack}")
    with images.registry(tmp_path / "registry") as host:
        program = ["sh", "-c", 'echo image says "$@"; cat /data/*', "sh"]
        files: list[images.Member] = [("etc", None), ("workspace", None)]
        images.make_image(tmp_path / "image", files, Entrypoint=program, WorkingDir="/workspace")
        name = f"{host}/library/tool:v1"
        images.push(tmp_path / "image", name)
        started = make_system(TRAINYARD_IMAGES_SOURCES=host, TRAINYARD_IMAGES_PLAIN_HTTP=host)
        claim = started.data_dir / "files" / "pvc" / "default" / "corpus"
        claim.mkdir(parents=True)
        (claim / "words.txt").write_text("words of the claim\n")
        yield started.start("n1"), name


def test_runai_client_runs_an_image_with_a_volume(system: tuple[System, str]) -> None:
    from runai.runai_client import RunaiClient  # noqa: PLC0415  see `runai`

    here, image = system
    pair = here.call("POST", "/v1/keys", {"role": "user", "project": "default", "name": "ada"})[1]["data"]
    configuration = runai.Configuration(
        client_id=pair["access_key"],
        client_secret=pair["secret_key"],
        retry_enabled=False,
        runai_base_url=f"http://127.0.0.1:{here.port}",
    )
    trainings = RunaiClient(runai.ApiClient(configuration)).workloads.trainings
    volume = {"pvc": [{"existingPvc": True, "claimName": "corpus", "path": "/data", "readOnly": True}]}

    def printed(name: str, **program: Any) -> list[str]:
        spec = {"image": image, "imagePullPolicy": "IfNotPresent", "storage": volume, **program}
        wanted = {"name": name, "projectId": "default", "clusterId": CLUSTER, "spec": spec}
        made = trainings.create_training1(cast("Any", runai.TrainingCreationRequest).from_dict(wanted))
        assert "Warning" not in made.headers
        job_id = f"job-{made.data['workloadId']}"
        here.wait_for_status(job_id, "COMPLETED", seconds=60)
        return here.log_lines(job_id)

    assert printed("arguments", args="of 'its own'") == ["image says of its own", "words of the claim"]
    command = {"command": "sh -c 'pwd; cat /data/words.txt'", "workingDir": "/workspace"}
    assert printed("command", **command) == ["/workspace", "words of the claim"]


def test_image_that_the_registry_lacks_fails_its_job_before_a_device_is_taken(system: tuple[System, str]) -> None:
    here, image = system

    def ended(reference: str, status: str) -> dict[str, Any]:
        framework = {"type": "CUSTOM", "custom_command": ["sh", "-c", "exit 0"]}
        asked = make_document(
            training_config={"base_model": {"model_id": "none"}, "framework": framework},
            data_config={"sources": [{"path": "pvc://corpus/words.txt"}]},
            resource_config={"gpu_count": 1, "image": {"reference": reference}},
        )
        return here.wait_for_status(here.submit(asked), status, seconds=60)

    missing = ended(f"{image}-2", "FAILED")
    assert (missing["attempt"], missing["error_type"]) == (0, "INVALID_CONFIG")
    assert f"resource_config.image.reference: there is no image {image}-2" in missing["error_message"]

    (event,) = (
        event
        for event in here.get(f"/v1/jobs/{ended(image, 'COMPLETED')['job_id']}/events")["events"]
        if event["type"] == "job.preflight"
    )
    assert event["message"] == "the registry has the image"


def test_client_of_kubernetes_runs_an_image_of_ome(system: tuple[System, str], tmp_path: Path) -> None:
    here, image = system
    trainer = {
        "image": image,
        "command": ["sh", "-c", "cat /mnt/words.txt; ls /; ls /usr || true"],
        "resourcesPerNode": {"requests": {"cpu": "1"}},
    }
    body = {
        "apiVersion": "ome.io/v1beta1",
        "kind": "TrainingJob",
        "metadata": {"name": "in-image"},
        "spec": {
            "runtimeRef": {"name": "pytorch-runtime", "kind": "ClusterTrainingRuntime"},
            "trainer": trainer,
            "datasets": {"storageUri": "pvc://corpus/words.txt", "path": "/mnt/words.txt"},
        },
    }
    with tls_before(here.port, tmp_path) as (port, certificate):
        configuration = kubernetes.client.Configuration(host=f"https://127.0.0.1:{port}")
        configuration.ssl_ca_cert = str(certificate)
        configuration.api_key = {"authorization": f"Bearer {here.key}"}
        with kubernetes.client.ApiClient(configuration) as connection:
            kubernetes.client.CustomObjectsApi(connection).create_namespaced_custom_object(**GROUP, body=body)

    job_id = wait_for(
        lambda: next((row["job_id"] for row in here.get("/v1/jobs")["jobs"] if row["name"] == "in-image"), None),
        seconds=10,
        what="the job",
    )
    here.wait_for_status(job_id, "COMPLETED", seconds=60)
    first, *others = here.log_lines(job_id)
    assert first == "words of the claim"
    assert "workspace" in others
    assert any("/usr: No such file" in line for line in others)
