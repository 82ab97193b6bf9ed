"""Fields about roles and about reaching a job, each by a request: what is read back, its effect, or why it has none."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.database.engine import Database
from tests.builders.factories import make_node
from tests.integration.compat import test_modelarts as modelarts
from tests.integration.compat import test_runai as runai
from tests.systems.apps import Api

WORKS, NAMED, REFUSED = "works", "named", "refused"
HERE = "$(TRAINYARD_RUN_DIR)/code"
OBS = {"obs": {"obs_url": "obs://bucket/x/"}}
Effect = Callable[[Any], Any]


@pytest.fixture
def served(sqlite_api: Api) -> Api:
    with sqlite_api.db.write() as session:
        make_node(session, "n1", devices=4, labels=["pool-1"])
    return sqlite_api


@pytest.fixture
def gateway(database: Database, tmp_path: Path) -> Api:
    """An installation whose gateway serves ports of jobs."""
    return Api(database, tmp_path, TRAINYARD_GATEWAY_PORTS_URL="http://jobs.localhost:8001")


def at(document: Any, path: str) -> Any:
    """The value at a dotted path; None where there is none."""
    for name in path.split("."):
        if isinstance(document, list) and name.isdecimal():
            document = document[int(name)] if int(name) < len(document) else None
        else:
            document = document.get(name) if isinstance(document, dict) else None
    return document


def with_value(document: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy with the value at the path."""
    name, _, rest = path.partition(".")
    inner = with_value(document.get(name) or {}, rest, value) if rest else value
    return {**document, name: inner}


def warned_of(answer: Any) -> list[str]:
    return [line.split('"')[1].partition(":")[0] for line in answer.headers.getlist("Warning")]


def role(path: str) -> Effect:
    return lambda native: at(native["tasks"][0], path)


def command_of(native: Any) -> list[str]:
    training = native["tasks"][0]["training_config"]
    return [*(training.get("custom_command") or []), *(training.get("custom_arguments") or [])]


# Of a task in ModelArts: path, value, verdict, and for what works where it is in the native job.
CODE = {"code_dir": "obs://bucket/src/", "boot_file": "obs://bucket/src/train.py"}
TASK: list[tuple[str, Any, str, Effect | None, Any]] = [
    ("role", "trainer", WORKS, role("role"), "trainer"),
    ("role", "a/b", REFUSED, None, None),
    (
        "algorithm.code_dir",
        "obs://bucket/src/",
        WORKS,
        lambda job: at(job, "training_config.framework.custom_code_dir"),
        "obs://bucket/src/",
    ),
    (
        "algorithm.boot_file",
        "obs://bucket/src/a.py",
        WORKS,
        role("training_config.custom_script_path"),
        "obs://bucket/src/a.py",
    ),
    ("algorithm.inputs.name", "data", WORKS, command_of, ["--data=$(TRAINYARD_DATA_0)"]),
    ("algorithm.inputs.description", "d", WORKS, None, None),
    ("algorithm.inputs.local_dir", "/home/x", WORKS, lambda job: at(job, "resource_config.mounts.0.path"), "/home/x"),
    ("algorithm.inputs.remote", OBS, WORKS, lambda job: at(job, "data_config.sources.0.path"), "obs://bucket/x/"),
    ("algorithm.inputs.remote", {"dataset": {"id": "d"}}, REFUSED, None, None),
    ("algorithm.outputs.name", "out", WORKS, command_of, ["--out=$(TRAINYARD_OUTPUT_DIR)"]),
    ("algorithm.outputs.local_dir", "/home/y", WORKS, lambda job: at(job, "resource_config.mounts.0.path"), "/home/y"),
    ("algorithm.outputs.remote", OBS, WORKS, lambda job: at(job, "output_config.output_path"), "obs://bucket/x"),
    ("algorithm.outputs.mode", "upload_periodically", NAMED, None, None),
    ("algorithm.outputs.period", "30s", NAMED, None, None),
    ("algorithm.engine.engine_id", "pytorch-1", NAMED, None, None),
    ("algorithm.engine.engine_name", "PyTorch", NAMED, None, None),
    ("algorithm.engine.engine_version", "1.4", NAMED, None, None),
    ("algorithm.engine.v1_compatible", False, WORKS, None, None),
    ("algorithm.engine.run_user", "1000", WORKS, lambda job: at(job, "resource_config.user.uid"), 1000),
    ("algorithm.engine.run_user", "ma-user", NAMED, None, None),
    ("algorithm.engine.run_user", "0", REFUSED, None, None),
    ("algorithm.engine.image_url", "hub.example.com/x:1", NAMED, None, None),  # this operator has no registries
    (
        "algorithm.local_code_dir",
        "/home/code",
        WORKS,
        lambda job: [each["path"] for each in job["resource_config"]["mounts"]],
        ["/home/code"],
    ),
    ("algorithm.local_code_dir", "/srv/code", REFUSED, None, None),
    (
        "algorithm.working_dir",
        "/home/ma-user/modelarts/user-job-dir/src",
        WORKS,
        command_of,
        ["bash", "-c", 'cd "$0" && exec python "$@"', HERE, f"{HERE}/train.py"],
    ),
    ("algorithm.working_dir", "/tmp", NAMED, None, None),
    ("algorithm.environments", {"MODE": "fast"}, WORKS, role("training_config.environment"), {"MODE": "fast"}),
    ("task_resource.flavor_id", "trainyard.cpu.2", WORKS, role("resource_config.gpu_count"), 2),
    ("task_resource.flavor_id", "trainyard.gpu.2", REFUSED, None, None),
    ("task_resource.node_count", 2, WORKS, role("count"), 2),
    ("task_resource.pool_id", "pool-1", WORKS, role("resource_config.required_node_labels"), ["pool-1"]),
    *(
        (f"task_resource.{name}", value, NAMED, None, None)
        for name, value in (
            ("flavor_name", "x"),
            ("max_num", 7),
            ("flavor_type", "GPU"),
            ("billing", {"code": "x"}),
            ("flavor_info", {"max_num": 7, "npu": {"unit_num": 1}}),
            ("attributes", {"a": "b"}),
        )
    ),
]
READ_ONLY = ("flavor_name", "max_num", "flavor_type", "billing", "flavor_info", "attributes")


@pytest.mark.parametrize(("path", "value", "verdict", "effect", "expected"), TASK)
def test_field_of_a_task_of_modelarts(
    served: Api, path: str, value: Any, verdict: str, effect: Effect | None, expected: Any
) -> None:
    base: dict[str, Any] = {"role": "a", "algorithm": CODE, "task_resource": {"flavor_id": "trainyard.cpu.1"}}
    kind = next((each for each in ("inputs", "outputs") if f".{each}." in path), "")
    if kind:
        base = with_value(base, f"algorithm.{kind}", {"name": "data", "remote": OBS})
    body = {**modelarts.BODY, "algorithm": {}, "tasks": [with_value(base, path, value)]}

    answer = served.post(modelarts.JOBS, body)

    if verdict == REFUSED:
        field = modelarts.said(answer, 400)["error_msg"].partition(":")[0]
        assert re.sub(r"(puts)\.0", r"\1", field).startswith(f"tasks.0.{path}")
        return
    made = modelarts.said(answer, 201)
    read = modelarts.said(served.call("GET", f"{modelarts.JOBS}/{made['metadata']['id']}"))["tasks"][0]
    assert (f"tasks.{path}" in warned_of(answer) or path.rpartition(".")[2] in str(warned_of(answer))) is (
        verdict == NAMED
    ), warned_of(answer)
    if path.rpartition(".")[2] in READ_ONLY:
        assert at(read, path) not in (None, value), "that of the flavor"
        info = read["task_resource"]["flavor_info"]
        assert [sorted(info), sorted(info["disk"]), sorted(info["cpu"])] == [
            ["cpu", "disk", "max_num", "memory"],  # gpu, too, where the flavor has one; no node has an NPU
            ["size", "unit"],
            ["core_num"],
        ]
    else:
        assert at(read, path) == value
    if effect is not None:
        found = effect(served.get(f"/v1/jobs/job-{made['metadata']['id']}"))
        assert found[-len(expected) :] == expected if isinstance(expected, list) else found == expected


ENDPOINTS: list[tuple[dict[str, Any], str, str]] = [
    ({"metadata": {"name": "x", "annotations": {"jupyter-lab/enable": "true"}}}, WORKS, "jupyter_lab.url"),
    ({"metadata": {"name": "x", "annotations": {"jupyter-lab/enable": "true"}}}, WORKS, "jupyter_lab.token"),
    ({"metadata": {"name": "x", "annotations": {"tensorboard/enable": "true"}}}, WORKS, "tensorboard.url"),
    ({"metadata": {"name": "x", "annotations": {"tensorboard/enable": "true"}}}, WORKS, "tensorboard.token"),
    ({"endpoints": {"ssh": {"key_pair_names": ["k"]}}}, NAMED, "ssh.key_pair_names"),
    ({"endpoints": {"ssh": {"key_pair_names": ["k"]}}}, NAMED, "ssh.task_urls.0.url"),
    ({"endpoints": {"mindstudio_insight": {"url": "x"}}}, REFUSED, "endpoints.mindstudio_insight"),
    (
        {"metadata": {"name": "x", "annotations": {"mindstudio-insight/enable": "true"}}},
        REFUSED,
        "metadata.annotations.mindstudio-insight/enable",
    ),
]


@pytest.mark.parametrize(("changes", "verdict", "path"), ENDPOINTS)
def test_endpoint_of_modelarts(gateway: Api, changes: dict[str, Any], verdict: str, path: str) -> None:
    answer = gateway.post(modelarts.JOBS, {**modelarts.BODY, **changes})

    if verdict == REFUSED:
        assert modelarts.said(answer, 400)["error_msg"].startswith(path)
        return
    made = modelarts.said(answer, 201)
    read = modelarts.said(gateway.call("GET", f"{modelarts.JOBS}/{made['metadata']['id']}"))
    assert at(read["endpoints"], path)
    assert bool(warned_of(answer)) is (verdict == NAMED)


def interactive(path: str) -> Effect:
    return lambda native: at(native["interactive_config"], path)


PROBE = {"handler": {"httpGet": {"port": 80}}}
# Of spec in Run:ai.
SPEC: list[tuple[str, Any, str, Effect | None, Any]] = [
    ("ports", [{"container": 5432, "name": "db"}], WORKS, interactive("ports.0.port"), 5432),
    ("ports", [{"container": 5432, "serviceType": "NodePort", "external": 30080}], NAMED, None, None),
    ("ports", [{"container": 0}], REFUSED, None, None),
    ("exposedUrls", [{"container": 8080, "name": "tool"}], WORKS, interactive("ports.0.protocol"), "http"),
    (
        "exposedUrls",
        [{"container": 8080, "authorizedUsers": ["ada"]}],
        WORKS,
        interactive("ports.0.authorized_users"),
        ["ada"],
    ),
    ("exposedUrls", [{"container": 8080, "authorizedGroups": ["lab"]}], REFUSED, None, None),
    ("exposedUrls", [{"container": 8080, "url": "http://mine"}], NAMED, None, None),
    ("probes", {"readiness": PROBE}, WORKS, interactive("readiness_probe.port"), 80),
    ("probes", {"readiness": {**PROBE, "periodSeconds": 5, "timeoutSeconds": 9}}, NAMED, None, None),
    ("probes", {"readiness": {"bad": 1}}, REFUSED, None, None),
    ("tty", True, WORKS, interactive("terminal"), True),
    ("stdin", True, WORKS, lambda job: "mkfifo" in str(job["training_config"]["framework"]["custom_command"]), True),
    ("parallelism", 2, WORKS, lambda job: [(each["role"], each["count"]) for each in job["tasks"]], [("copy", 2)]),
    ("parallelism", 65, REFUSED, None, None),
    ("completions", 3, WORKS, lambda job: "JOB_COMPLETION_INDEX" in str(job["training_config"]["framework"]), True),
    ("completions", 0, REFUSED, None, None),
    ("exposedUrls", [{"container": 8080, "authorizationType": "authorizedUsersOrGroups"}], REFUSED, None, None),
]


@pytest.mark.parametrize(("path", "value", "verdict", "effect", "expected"), SPEC)
def test_field_of_a_training_of_run_ai(
    gateway: Api, path: str, value: Any, verdict: str, effect: Effect | None, expected: Any
) -> None:
    with gateway.db.write() as session:
        make_node(session, "n1", devices=4)
    spec = {"command": "true", **({"completions": 100} if path == "parallelism" else {}), path: value}

    answer = gateway.post(runai.TRAININGS, {**runai.BODY, "spec": spec})

    if verdict == REFUSED:
        assert runai.said(answer, 400)["complianceIssues"][0]["field"].startswith(f"spec.{path}")
        return
    made = runai.said(answer, 202)
    read = runai.said(gateway.call("GET", f"{runai.TRAININGS}/{made['workloadId']}"))["spec"]
    assert any(f"spec.{path}" in field for field in warned_of(answer)) is (verdict == NAMED), warned_of(answer)
    if path == "exposedUrls":
        (shown,) = read[path]
        assert shown.pop("url").startswith("http://jobs.localhost:8001/jobs/")
        assert [shown] == [{name: text for name, text in value[0].items() if name != "url"}]
    else:
        assert read[path] == value
    if effect is not None:
        assert effect(gateway.get(f"/v1/jobs/job-{made['workloadId']}")) == expected
