"""Volumes of a runtime's pod: claims and empty directories are mounts of its jobs, others are named."""

from collections.abc import Sequence
from typing import Any

import pytest

from app.compat.mounts import ContainerMount
from app.compat.ome.fields import runtime_warnings
from app.compat.ome.places import PlacedModel
from app.compat.ome.pod_files import PodFiles
from app.compat.ome.to_native import Native, to_native

POD = "spec.template.spec.replicatedJobs.0.template.spec.template.spec"


def runtime(volumes: object, mounts: object) -> dict[str, Any]:
    container = {"name": "trainer", "volumeMounts": mounts}
    pod = {"containers": [{"name": "side"}, container], "volumes": volumes}
    return {"template": {"spec": {"replicatedJobs": [{"template": {"spec": {"template": {"spec": pod}}}}]}}}


def translated(volumes: object, mounts: object, **spec: Any) -> Native:
    trainer = {"command": ["python", "train.py"]}
    return to_native("j", {"trainer": trainer, **spec}, runtime(volumes, mounts), {}, uses_images=True)


def mounts_of(volumes: object, mounts: object, **spec: Any) -> list[dict[str, Any]]:
    resources: dict[str, Any] = translated(volumes, mounts, **spec).document["resource_config"]
    found: list[dict[str, Any]] = resources.get("mounts", [])
    return found


def unused(volumes: object, mounts: object) -> list[str]:
    lines = runtime_warnings({"spec": runtime(volumes, mounts)})
    named = [line.partition(":")[0] for line in lines]
    return [each.removeprefix(f"{POD}.") for each in named if each != f"{POD}.containers.0"]


CLAIM = {"name": "data", "persistentVolumeClaim": {"claimName": "team"}}
EMPTY = {"name": "scratch", "emptyDir": {}}
IN_MEMORY = {"name": "fast", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}


def test_claims_and_empty_directories_lie_at_their_paths() -> None:
    volumes = [CLAIM, EMPTY, IN_MEMORY]
    mounts = [
        {"name": "data", "mountPath": "/data/", "readOnly": True, "subPath": "sets/a"},
        {"name": "data", "mountPath": "/all"},
        {"name": "scratch", "mountPath": "/scratch"},
        {"name": "fast", "mountPath": "/fast"},
    ]

    assert mounts_of(volumes, mounts) == [
        {"path": "/data", "type": "claim", "claim": "team", "sub_path": "sets/a", "read_only": True},
        {"path": "/all", "type": "claim", "claim": "team"},
        {"path": "/scratch", "type": "empty"},
        {"path": "/fast", "type": "memory", "size_mb": 1024},
    ]
    assert unused(volumes, mounts) == []


def test_claim_that_is_read_only_stays_so() -> None:
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "team", "readOnly": True}}

    (mount,) = mounts_of([volume], [{"name": "data", "mountPath": "/data", "readOnly": False}])

    assert mount["read_only"] is True


def test_places_of_the_job_come_before_volumes_of_its_runtime() -> None:
    datasets = {"storageUri": "/srv/sets", "path": "/data"}

    mounts = [{"name": "data", "mountPath": path} for path in ("/data", "/more")]
    found = translated([CLAIM], mounts, datasets=datasets)

    assert found.document["resource_config"]["mounts"] == [
        {"path": "/data", "type": "data", "required": False},
        {"path": "/more", "type": "claim", "claim": "team"},
    ]
    assert [line for line in found.warnings if "volume at" in line] == [
        "spec.runtimeRef: the runtime's volume at /data has no effect: the job's data, output or model lies there"
    ]


def test_volume_at_the_path_of_the_model_is_named() -> None:
    wanted = {"trainer": {"command": ["python", "train.py"]}, "modelConfig": {"inputModel": "base"}}
    given = runtime([EMPTY], [{"name": "scratch", "mountPath": "/models"}])

    found = to_native("j", wanted, given, {}, uses_images=True, model=PlacedModel("/srv/model", "/models"))

    assert [each["type"] for each in found.document["resource_config"]["mounts"]] == ["model"]
    assert [line for line in found.warnings if "volume at /models has no effect" in line] != []


def test_second_volume_of_a_name_is_named_and_not_mounted() -> None:
    other = {"name": "data", "emptyDir": {}}
    mounts = [{"name": "data", "mountPath": "/data"}]

    assert mounts_of([CLAIM, other], mounts) == [{"path": "/data", "type": "claim", "claim": "team"}]
    assert unused([CLAIM, other], mounts) == ["volumes.1"]


def test_shared_memory_is_there_without_a_mount() -> None:
    mounts = [{"name": "fast", "mountPath": "/dev/shm"}]

    assert (mounts_of([IN_MEMORY], mounts), unused([IN_MEMORY], mounts)) == ([], [])


@pytest.mark.parametrize(
    ("volume", "path"),
    [
        ({"name": "v", "secret": {"secretName": "s", "defaultMode": 0o044}}, "volumes.0"),
        ({"name": "v", "secret": {"secretName": "s", "items": [{"key": "a", "path": "b/c"}]}}, "volumes.0"),
        ({"name": "v", "secret": {"secretName": "s", "items": [{"key": "a", "path": "b", "mode": 256}]}}, "volumes.0"),
        ({"name": "v", "secret": {"secretName": "s", "items": 5}}, "volumes.0"),
        ({"name": "v", "configMap": {"name": 5}}, "volumes.0"),
        ({"name": "v", "hostPath": {"path": "/etc"}}, "volumes.0"),
        ({"name": "v", "persistentVolumeClaim": {"claimName": "../other"}}, "volumes.0"),
        ({"name": "v", "persistentVolumeClaim": {"claimName": 5}}, "volumes.0"),
        ({"name": "v", "emptyDir": 5}, "volumes.0"),
        ({"name": "v", "emptyDir": {"medium": "Memory", "sizeLimit": "much"}}, "volumes.0"),
        ({"name": 5, "emptyDir": {}}, "volumes.0"),
        (5, "volumes.0"),
    ],
)
def test_volume_of_another_kind_is_named_and_not_mounted(volume: object, path: str) -> None:
    mounts = [{"name": "v", "mountPath": "/v"}]

    assert mounts_of([volume], mounts) == []
    assert unused([volume], mounts) == [path, "containers.1.volumeMounts.0"]


@pytest.mark.parametrize(
    "mount",
    [
        {"name": "data", "mountPath": "/usr"},
        {"name": "data", "mountPath": "relative"},
        {"name": "data", "mountPath": "/v", "subPath": "../other"},
        {"name": "missing", "mountPath": "/v"},
        {"name": "data"},
        5,
    ],
)
def test_mount_that_can_not_be_made_is_named(mount: object) -> None:
    assert mounts_of([CLAIM], [mount]) == []
    assert unused([CLAIM], [mount]) == ["containers.1.volumeMounts.0"]


def test_what_has_no_effect_on_a_mount_is_named() -> None:

    mounts = [
        {"name": "scratch", "mountPath": "/a", "subPath": "x", "readOnly": True},
        {"name": "scratch", "mountPath": "/b"},
        {"name": "data", "mountPath": "/a"},
        {"name": "data", "mountPath": "/c", "mountPropagation": "None"},
    ]

    assert unused([EMPTY, CLAIM], mounts) == [
        "containers.1.volumeMounts.0.subPath",
        "containers.1.volumeMounts.0.readOnly",
        "containers.1.volumeMounts.1",
        "containers.1.volumeMounts.2",
        "containers.1.volumeMounts.3.mountPropagation",
    ]


def test_built_in_trainer_uses_no_volumes_and_says_so() -> None:
    spec = {"trainer": {}, "datasets": {"storageUri": "/srv/sets"}, "modelConfig": {"inputModel": "/srv/model"}}

    found = to_native("j", spec, runtime([CLAIM], [{"name": "data", "mountPath": "/data"}]), {})

    assert "mounts" not in found.document["resource_config"]
    assert [line for line in found.warnings if "uses no volumes of the runtime" in line] != []


@pytest.mark.parametrize("malformed", [5, "x", {"a": 1}, None])
def test_malformed_lists_are_no_volumes(malformed: object) -> None:
    assert mounts_of(malformed, malformed) == []


def test_directory_on_disk_has_its_size() -> None:
    sized = {"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}}

    mounts = [{"name": "scratch", "mountPath": "/scratch"}]
    assert mounts_of([sized], mounts) == [{"path": "/scratch", "type": "empty", "size_mb": 1024}]
    assert unused([sized], mounts) == []


def test_secrets_and_config_maps_are_files_of_the_project() -> None:
    asked: list[PodFiles] = []

    def read(wanted: Sequence[PodFiles]) -> list[ContainerMount]:
        asked.extend(wanted)
        return [ContainerMount("/keys", "", "", {"type": "files", "files": [{"name": "a", "content": "x"}]})]

    volumes = [
        {"name": "keys", "secret": {"secretName": "db", "defaultMode": 0o440, "optional": True}},
        {"name": "code", "configMap": {"name": "run", "items": [{"key": "run.sh", "path": "go.sh"}]}},
    ]
    mounts = [
        {"name": "keys", "mountPath": "/keys", "readOnly": True},
        {"name": "code", "mountPath": "/app/go.sh", "subPath": "go.sh"},
    ]
    given = runtime(volumes, mounts)

    found = to_native("j", {"trainer": {"command": ["true"]}}, given, {}, read_files=read)

    assert asked == [
        PodFiles("db", "0440", {}, optional=True, mounted="/keys"),
        PodFiles("run", names={"run.sh": "go.sh"}, mounted="/app/go.sh", part="go.sh"),
    ]
    assert [each["path"] for each in found.document["resource_config"]["mounts"]] == ["/keys"]
    assert unused(volumes, mounts) == []
