"""Kubernetes' newest client, whose requirements don't fit beside ours: one training job from its creation to its end.

The arguments are the server's URL, the file of its certificate, a namespace and the shell script to run.
"""

import os
import sys
from typing import Any

from kubernetes import client, watch
from kubernetes.client.exceptions import ApiException

SERVER, CERTIFICATE, NAMESPACE, SCRIPT = sys.argv[1:]
JOBS = {"group": "ome.io", "version": "v1beta1", "namespace": NAMESPACE, "plural": "trainingjobs"}
MANIFEST = {
    "apiVersion": "ome.io/v1beta1",
    "kind": "TrainingJob",
    "metadata": {"name": "newest", "labels": {"team": "nlp"}},
    "spec": {
        "runtimeRef": {"name": "pytorch-runtime", "kind": "ClusterTrainingRuntime"},
        "trainer": {
            "image": "my-training-image:latest",
            "command": ["sh"],
            "args": ["-c", SCRIPT],
            "numProcPerNode": "1",
            "resourcesPerNode": {"requests": {"nvidia.com/gpu": "1"}},
        },
    },
}


def run() -> None:
    configuration = client.Configuration(host=SERVER)
    configuration.ssl_ca_cert = CERTIFICATE
    configuration.api_key = {"authorization": f"Bearer {os.environ['KEY']}"}
    with client.ApiClient(configuration) as connection:
        jobs, core = client.CustomObjectsApi(connection), client.CoreV1Api(connection)
        made = jobs.create_namespaced_custom_object(**JOBS, body=MANIFEST)
        ended = _watched(jobs)
        pod = core.list_namespaced_pod(NAMESPACE, label_selector="job-name=newest").items[0]
        log = core.read_namespaced_pod_log("newest-0", NAMESPACE, container="trainer", _preload_content=False).data
        jobs.patch_namespaced_custom_object(**JOBS, name="newest", body={"metadata": {"labels": {"stage": "newest"}}})
        labelled = jobs.list_namespaced_custom_object(**JOBS, label_selector="stage=newest")["items"]
        assert _refused(jobs) == 409
        jobs.delete_namespaced_custom_object(**JOBS, name="newest")
        assert not jobs.list_namespaced_custom_object(**JOBS, label_selector="stage=newest")["items"]

    assert made["metadata"]["name"] == ended["metadata"]["name"] == "newest"
    assert (pod.metadata.name, pod.status.phase) == ("newest-0", "Succeeded")
    assert log == b"hello\n", log
    assert [each["metadata"]["labels"] for each in labelled] == [{"team": "nlp", "stage": "newest"}]


def _refused(jobs: client.CustomObjectsApi) -> int:
    """The status of the answer when a name is given twice."""
    try:
        jobs.create_namespaced_custom_object(**JOBS, body=MANIFEST)
    except ApiException as error:
        return int(error.status)
    return 201


def _watched(jobs: client.CustomObjectsApi) -> dict[str, Any]:
    only = {"field_selector": "metadata.name=newest", "timeout_seconds": 90}
    for event in watch.Watch().stream(jobs.list_namespaced_custom_object, **JOBS, **only):
        conditions = event["object"]["status"]["conditions"]
        if any(each["type"] == "Complete" and each["status"] == "True" for each in conditions):
            return dict(event["object"])
    raise AssertionError("the job has not ended in time")


run()
sys.stdout.write("done\n")
