"""Clients of other systems reach their running jobs: Run:ai's an exposed URL, ModelArts' a notebook's address."""

import http.client
import urllib.parse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from huaweicloudsdkmodelarts.v1 import model

from tests.e2e.test_modelarts_sdk import client_of
from tests.e2e.test_vocabularies import CLUSTER, runai_of
from tests.lazy_imports import lazily_imported
from tests.systems.installations import running_system
from tests.systems.system import System, wait_for
from tests.systems.with_gateway import gateway_of

if TYPE_CHECKING:
    import runai
else:
    runai = lazily_imported("runai")

pytestmark = [pytest.mark.long, pytest.mark.timeout(200)]

SITE = (
    "mkdir site && cd site && echo hello from $TRAINYARD_JOB_ID > index.html && "
    "exec python -m http.server 8080 --bind 127.0.0.1"
)


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory, owned_pids: set[int]) -> Iterator[System]:
    """With a gateway that serves ports of jobs."""
    folder, ports = tmp_path_factory.mktemp("ports"), "http://jobs.localhost"
    with running_system(folder, owned_pids, "n1", TRAINYARD_GATEWAY_PORTS_URL=ports) as started, gateway_of(started):
        yield started


def opened(system: System, url: str, **headers: str) -> tuple[int, str, str | None]:
    """Status, text and where it leads, as a browser that knows the host asks the gateway."""
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection("127.0.0.1", system.gateway_port, timeout=20)
    try:
        connection.request("GET", f"{parts.path}?{parts.query}", headers={"Host": parts.netloc, **headers})
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), answer.headers["Location"]
    finally:
        connection.close()


def key_of(system: System, name: str) -> str:
    made = system.call("POST", "/v1/keys", {"role": "user", "project": "default", "name": name})[1]["data"]
    return f"Bearer {made['key']}"


def test_runai_client_opens_an_exposed_url_once_its_workload_is_ready(system: System) -> None:
    client = runai_of(system).workloads
    ready = runai.Probe(
        periodSeconds=1, handler=runai.ProbeHandler(httpGet=runai.ProbeHandlerHttpGet(path="/", port=8080))
    )
    spec = runai.TrainingSpecSpec(
        command="sh",
        args=f"-c '{SITE}'",
        exposedUrls=[runai.ExposedUrl(container=8080, name="tool", authorizedUsers=["grace"])],
        probes=runai.Probes(readiness=ready),
    )
    wanted = runai.TrainingCreationRequest(name="site", projectId="default", clusterId=CLUSTER, spec=spec)

    made: Any = client.trainings.create_training1(wanted)
    workload = made.data["workloadId"]

    def conditions() -> list[tuple[str, str]]:
        found = runai.Workload.from_dict(client.workloads.get_workload(workload).data)
        assert found is not None
        return [(each.type, each.status) for each in found.conditions or []]

    wait_for(lambda: True if conditions() == [("Ready", "True")] else None, seconds=60, what="it is ready")
    url = client.trainings.get_training(workload).data["spec"]["exposedUrls"][0]["url"]
    friend, stranger = key_of(system, "grace"), key_of(system, "mallory")

    assert made.headers.get("Warning") is None
    assert url == f"http://jobs.localhost/jobs/job-{workload}/ports/tool/"
    assert client.workloads.get_workload(workload).data["urls"] == [url]
    assert opened(system, url, Authorization=friend)[:2] == (200, f"hello from job-{workload}\n")
    assert opened(system, url, Authorization=stranger)[0] == 403
    assert opened(system, url)[0] == 401
    # With the token of an application, too, as clients have it.
    pair = system.call("POST", "/v1/keys", {"role": "user", "project": "default", "name": "grace"})[1]["data"]
    asked = {"grantType": "app_token", "AppId": pair["access_key"], "AppSecret": pair["secret_key"]}
    token = system.call("POST", "/api/v1/token", asked)[1]["accessToken"]
    assert opened(system, url, Authorization=f"Bearer {token}")[:2] == (200, f"hello from job-{workload}\n")
    client.trainings.delete_training(workload)
    system.wait_for_status(f"job-{workload}", "CANCELLED", seconds=30)


def test_modelarts_sdk_reads_where_its_job_is_reached(system: System) -> None:
    resource = model.SpecResource(flavor_id="trainyard.cpu.1", node_count=1)
    body = model.Job(
        kind="job",
        metadata=model.JobMetadata(name="lab", annotations={"jupyter-lab/enable": "true"}),
        algorithm=model.JobAlgorithm(command="sleep 300"),
        spec=model.Spec(resource=resource),
        endpoints=model.JobEndpointsReq(ssh=model.SSHReq(key_pair_names=["mine"])),
    )
    with client_of(system) as client:
        made = client.create_training_job(model.CreateTrainingJobRequest(body=body)).metadata.id
        system.wait_for_status(f"job-{made}", "TRAINING", seconds=60)

        shown = client.show_training_job_details(model.ShowTrainingJobDetailsRequest(training_job_id=made)).endpoints
        status, _, leads_to = opened(system, shown.jupyter_lab.url)
        job_has_none = wait_for(
            lambda: [
                event["message"]
                for event in system.get(f"/v1/jobs/job-{made}/events")["events"]
                if event["reason"] == "NOTEBOOK"
            ],
            seconds=60,
            what="an event says what the notebook lacks",
        )
        client.stop_training_job(
            model.StopTrainingJobRequest(training_job_id=made, body=model.JobActionType(action_type="terminate"))
        )

    assert shown.jupyter_lab.url.endswith(f"?trainyard_token={shown.jupyter_lab.token}")
    assert (status, leads_to) == (303, f"http://jobs.localhost/jobs/job-{made}/ports/notebook/")
    assert "add jupyterlab to training_config.packages" in job_has_none[0]
    assert shown.ssh.key_pair_names == ["mine"]
    assert [(each.task, each.url) for each in shown.ssh.task_urls] == [("worker-0", f"ssh://job-{made}.trainyard")]
    assert shown.mindstudio_insight is None
    system.wait_for_status(f"job-{made}", "CANCELLED", seconds=30)
