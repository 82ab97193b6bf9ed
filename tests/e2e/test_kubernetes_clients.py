"""OME's training jobs by clients of Kubernetes that know nothing of Trainyard: kubectl, and Python's."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.doubles.tls import tls_before
from tests.lazy_imports import lazily_imported
from tests.systems.clients import CLIENTS, python_with
from tests.systems.forked_agents import ForkedAgents
from tests.systems.system import System, wait_for

if TYPE_CHECKING:
    import kubernetes
else:
    kubernetes = lazily_imported("kubernetes")

NAMESPACE = "kubernetes"
GROUP = {"group": "ome.io", "version": "v1beta1", "namespace": NAMESPACE, "plural": "trainingjobs"}


def manifest(name: str, script: str, **spec: Any) -> dict[str, Any]:
    trainer = {"image": "my-training-image:latest", "command": ["sh"], "args": ["-c", script], "numProcPerNode": "1"}
    return {
        "apiVersion": "ome.io/v1beta1",
        "kind": "TrainingJob",
        "metadata": {"name": name, "labels": {"team": "nlp"}},
        "spec": {
            "runtimeRef": {"name": "pytorch-runtime", "kind": "ClusterTrainingRuntime"},
            "trainer": {**trainer, "resourcesPerNode": {"requests": {"nvidia.com/gpu": "1"}}},
            **spec,
        },
    }


@pytest.fixture
def secured(shared_system: System, tmp_path: Path) -> Iterator[tuple[System, str, Path]]:
    """The system with one node, and what stands before it: clients send no credentials without TLS."""
    shared_system.call("POST", "/v1/projects", {"name": NAMESPACE})
    with tls_before(shared_system.port, tmp_path) as (port, certificate):
        yield shared_system, f"https://127.0.0.1:{port}", certificate


class Kubectl:
    def __init__(self, system: System, server: str, certificate: Path, folder: Path) -> None:
        self._folder, self.warned = folder, ""  # what the last call wrote to stderr
        named = {
            "clusters": [{"name": "t", "cluster": {"server": server, "certificate-authority": str(certificate)}}],
            "users": [{"name": "t", "user": {"token": system.key}}],
            "contexts": [{"name": "t", "context": {"cluster": "t", "user": "t", "namespace": NAMESPACE}}],
        }
        config = {"apiVersion": "v1", "kind": "Config", "current-context": "t", **named}
        (folder / "config").write_text(json.dumps(config))

    def command(self, *arguments: str) -> list[str]:
        return ["kubectl", f"--kubeconfig={self._folder / 'config'}", f"--cache-dir={self._folder}", *arguments]

    def __call__(self, *arguments: str) -> str:
        done = subprocess.run(
            self.command(*arguments),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={**os.environ, "HOME": str(self._folder)},
        )
        assert done.returncode == 0, done.stdout + done.stderr
        self.warned = done.stderr
        return done.stdout

    def write(self, *objects: dict[str, Any]) -> str:
        path = self._folder / "manifest.yaml"
        path.write_text(yaml.safe_dump_all(objects))
        return str(path)


@pytest.mark.long
@pytest.mark.timeout(200)
def test_kubectl_leads_a_training_job_through_its_life(secured: tuple[System, str, Path], tmp_path: Path) -> None:
    system, server, certificate = secured
    kubectl = Kubectl(system, server, certificate, tmp_path)
    jobs_of_other_tests = kubectl("get", "trainingjobs", "-o", "name")
    runtime = {
        "apiVersion": "ome.io/v1beta1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": "team"},
        "spec": {"mlPolicy": {"torch": {"numProcPerNode": "2"}}},
    }
    script = "for i in $(seq 1 400); do echo rank $RANK step $i; sleep 0.1; done"
    job = manifest("words", script, runtimeRef={"name": "team"})
    del job["spec"]["trainer"]["numProcPerNode"]

    _leads_a_base_model_through_its_life(kubectl, str(system.inputs / "model"))
    rehearsed = kubectl("apply", "--dry-run=server", "-f", kubectl.write(runtime, manifest("words", script)))
    applied = kubectl("apply", "-f", kubectl.write(runtime, job))
    again = kubectl("apply", "-f", kubectl.write(runtime, job))
    differs = kubectl("diff", "-f", kubectl.write(runtime, job))
    wait_for(lambda: " Running " in kubectl("get", "trainingjob", "words") or None, seconds=60, what="its start")
    job_id = next(row["job_id"] for row in system.get("/v1/jobs")["jobs"] if row["name"] == "words")
    wait_for(lambda: system.log_lines(job_id, rank=1) or None, seconds=30, what="its log")
    assert "words" in kubectl("get", "trainingjobs", "--sort-by=.metadata.creationTimestamp")
    pods = kubectl("get", "pods", "-l", "job-name=words")
    log = kubectl("logs", "-l", "job-name=words", "-c", "trainer", "--tail=-1")
    described = kubectl("describe", "trainingjob", "words")
    watching = subprocess.Popen(
        kubectl.command("get", "trainingjobs", "-w"),
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "HOME": str(tmp_path)},
    )
    try:
        kubectl("patch", "trainingjob", "words", "--type=merge", "-p", '{"spec": {"suspend": true}}')
        seen = wait_for(lambda: _line(watching, "Suspended"), seconds=60, what="the watch's line")
    finally:
        watching.terminate()
        watching.communicate(timeout=30)
    deleted = kubectl("delete", "trainingjob", "words")

    assert [line.split()[1:] for line in rehearsed.splitlines()] == [["created", "(server", "dry", "run)"]] * 2
    assert [line.split()[-1] for line in applied.splitlines()] == ["created", "created"]
    assert [line.split()[-1] for line in again.splitlines()] == ["unchanged", "unchanged"]
    assert differs == ""
    assert [line.split()[:3] for line in pods.splitlines()[1:]] == [
        ["words-0", "1/1", "Running"],
        ["words-1", "1/1", "Running"],
    ]
    assert {"rank 0 step 1", "rank 1 step 1"} <= set(log.splitlines())
    assert "Reason:                JobStarted" in described
    assert "attempt 1 on n1" in described
    assert seen.split()[:2] == ["words", "Suspended"]
    assert 'trainingjob.ome.io "words" deleted' in deleted
    assert kubectl("get", "trainingjobs", "-o", "name") == jobs_of_other_tests
    assert system.job(job_id)["status"] == "CANCELLED"


def _leads_a_base_model_through_its_life(kubectl: Kubectl, place: str) -> None:
    model = {
        "apiVersion": "ome.io/v1beta1",
        "kind": "BaseModel",
        "metadata": {"name": "tiny"},
        "spec": {"storage": {"storageUri": place, "schemaPath": "/mnt"}},
    }
    kubectl("apply", "-f", kubectl.write(model))
    assert kubectl.warned.startswith("Warning: spec.storage.schemaPath: data schemas are not supported")
    assert place in kubectl("describe", "basemodel", "tiny")
    assert kubectl("delete", "basemodel", "tiny").startswith('basemodel.ome.io "tiny" deleted')


def _line(process: subprocess.Popen[str], word: str) -> str | None:
    """The next one of what it prints, if the word is in it."""
    assert process.stdout is not None
    line = process.stdout.readline()
    return line if word in line else None


@pytest.mark.long
@pytest.mark.timeout(200)
def test_kubectl_shows_the_trials_of_a_search(secured: tuple[System, str, Path], tmp_path: Path) -> None:
    system, server, certificate = secured
    kubectl = Kubectl(system, server, certificate, tmp_path)
    search = {
        "method": "grid",
        "metric": {"name": "accuracy", "goal": "maximize"},
        "parameters": {"lr": {"type": "double", "values": [0.25, 0.75]}, "size": 8},
    }
    job = manifest("found", "echo size $(size); echo accuracy=$lr", hyperParameterTuningConfig=search)

    applied = kubectl("apply", "-f", kubectl.write(job))
    again = kubectl("apply", "-f", kubectl.write(job))
    wait_for(lambda: " Complete " in kubectl("get", "trainingjob", "found") or None, seconds=120, what="its end")
    described = kubectl("describe", "trainingjob", "found")
    pods = kubectl("get", "pods", "-l", "job-name=found", "-o", "name").split()
    log = kubectl("logs", "-l", "job-name=found", "-c", "trainer", "--tail=-1")
    best = kubectl("get", "trainingjob", "found", "-o", "jsonpath={.status.currentOptimalTrial}")
    kubectl("delete", "trainingjob", "found")

    assert [text.split()[-1] for text in (applied, again)] == ["created", "unchanged"]
    assert json.loads(best) == {"name": "found-trial-1", "values": {"lr": 0.75, "size": 8}, "value": 0.75}
    assert pods == ["pod/found-trial-0-0", "pod/found-trial-1-0"]
    assert sorted(log.splitlines()) == ["accuracy=0.25", "accuracy=0.75", "size 8", "size 8"]
    assert "Current Optimal Trial:" in described
    assert "trial 1 is the best: accuracy 0.75" in described  # an event
    assert "found" not in kubectl("get", "trainingjobs", "-o", "name")


@pytest.mark.long
@pytest.mark.timeout(200)
def test_pythons_client_watches_a_training_job_to_its_end(secured: tuple[System, str, Path]) -> None:
    system, server, certificate = secured
    (system.inputs / "code").mkdir()
    (system.inputs / "code" / "words.py").write_text("WORD = 'hello'\n")
    script = system.inputs / "code" / "say.py"  # it imports what lies beside it, below a storage root
    script.write_text(
        "import os, words\nprint(words.WORD)\nopen(os.environ['OUTPUT_PATH'] + '/w.bin', 'w').write('w')\n"
    )
    body = manifest("short", f"python {script}; sleep 1")
    configuration = kubernetes.client.Configuration(host=server)
    configuration.ssl_ca_cert = str(certificate)
    configuration.api_key = {"authorization": f"Bearer {system.key}"}
    with kubernetes.client.ApiClient(configuration) as connection:
        jobs, core = kubernetes.client.CustomObjectsApi(connection), kubernetes.client.CoreV1Api(connection)

        made = jobs.create_namespaced_custom_object(**GROUP, body=body)
        conditions = []
        only = {"field_selector": "metadata.name=short", "timeout_seconds": 90}  # other tests have jobs in it, too
        for event in kubernetes.watch.Watch().stream(jobs.list_namespaced_custom_object, **GROUP, **only):
            holding = [each["type"] for each in event["object"]["status"]["conditions"] if each["status"] == "True"]
            conditions.append((event["type"], holding[-1] if holding else ""))
            if "Succeeded" in holding:
                break
        pod = core.list_namespaced_pod(NAMESPACE, label_selector="job-name=short").items[0]
        log = core.read_namespaced_pod_log("short-0", NAMESPACE, container="trainer", _preload_content=False).data
        weights = jobs.list_namespaced_custom_object(**{**GROUP, "plural": "finetunedweights"})["items"]
        jobs.patch_namespaced_custom_object(**GROUP, name="short", body={"metadata": {"labels": {"stage": "done"}}})
        labelled = jobs.list_namespaced_custom_object(**GROUP, label_selector="stage=done")["items"]
        made["metadata"]["annotations"] = {"late": "yes"}
        with pytest.raises(kubernetes.client.ApiException) as stale:
            jobs.replace_namespaced_custom_object(**GROUP, name="short", body=made)
        with pytest.raises(kubernetes.client.ApiException) as twice:
            jobs.create_namespaced_custom_object(**GROUP, body=manifest("short", "true"))

    assert conditions[0][0] == "ADDED"
    assert ("MODIFIED", "Running") in conditions
    assert conditions[-1] == ("MODIFIED", "Complete")
    assert (pod.metadata.name, pod.status.phase, pod.spec.node_name) == ("short-0", "Succeeded", "n1")
    assert log == b"hello\n"
    assert ("short", "short") in {
        (each["metadata"]["name"], each["spec"]["trainingJobRef"]["name"]) for each in weights
    }
    assert [each["metadata"]["labels"] for each in labelled] == [{"team": "nlp", "stage": "done"}]
    assert (stale.value.status, json.loads(stale.value.body)["reason"]) == (409, "Conflict")
    assert (twice.value.status, json.loads(twice.value.body)["reason"]) == (409, "AlreadyExists")


@pytest.mark.long
@pytest.mark.timeout(300)
def test_newest_client_of_python(secured: tuple[System, str, Path]) -> None:
    system, server, certificate = secured
    program = [str(python_with("kubernetes")), str(CLIENTS / "kubernetes_client.py")]

    done = subprocess.run(
        [*program, server, str(certificate), NAMESPACE, "echo hello"],
        env={"PATH": os.environ["PATH"], "KEY": system.key},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )

    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


@pytest.mark.long
@pytest.mark.timeout(300)
def test_job_without_a_command_is_trained_by_the_built_in_trainer(
    make_system: Callable[..., System], forked_agents: ForkedAgents, assets: dict[str, str]
) -> None:
    roots = str(Path(assets["model"]).parent)
    system = make_system(TRAINYARD_STORAGE_ROOTS=roots, TRAINYARD_NODE_SANDBOX="bubblewrap").start("n1")
    forked_agents.serve_system(system)
    namespace = "/apis/ome.io/v1beta1/namespaces/default"
    head = {"apiVersion": "ome.io/v1beta1"}
    objects = {
        "basemodels": {
            **head,
            "kind": "BaseModel",
            "metadata": {"name": "tiny"},
            "spec": {"storage": {"storageUri": assets["model"]}},
        },
        "trainingruntimes": {
            **head,
            "kind": "TrainingRuntime",
            "metadata": {"name": "lora"},
            "spec": {"trainer": {"trainingType": "LORA", "maxSeqLength": 64}},
        },
        "trainingjobs": {
            **head,
            "kind": "TrainingJob",
            "metadata": {"name": "tuned"},
            "spec": {
                "runtimeRef": {"name": "lora", "kind": "TrainingRuntime"},
                "trainer": {"args": ["--max_steps=3"]},
                "modelConfig": {"inputModel": "tiny"},
                "datasets": {"storageUri": assets["train"], "parameters": {"format": "jsonl", "compression": "none"}},
            },
        },
    }

    made = [system.call("POST", f"{namespace}/{plural}", body) for plural, body in objects.items()]
    system.wait_for_status(f"job-{made[-1][1]['metadata']['uid']}", "COMPLETED", seconds=240)
    (weights,) = system.call("GET", f"{namespace}/finetunedweights")[1]["items"]

    assert [status for status, _ in made] == [201, 201, 201]
    assert weights["spec"]["baseModelRef"] == {"name": "tiny"}
    assert weights["spec"]["storage"]["storageUri"]
