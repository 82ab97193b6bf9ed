"""Volumes of Run:ai documents: data that a job's words refer to."""

from typing import Any

import pytest

from app.compat.runai.owners import Owner
from app.compat.runai.requests import DistributedSchema, TrainingSchema
from app.compat.runai.to_native import Native, to_native
from app.http.request_body import validated

OWNER = Owner(7, "Ada")


CLUSTER = "71f69d83-ba66-4822-adf5-55ce55efd210"


def translated(spec: dict[str, Any], **more: Any) -> Native:
    body = {"name": "my-training", "projectId": "default", "clusterId": CLUSTER, "spec": {"command": "true", **spec}}
    training = validated(TrainingSchema(), {**body, **more})
    return to_native(training, training["name"], may_read=lambda path: path.startswith("/srv"))


def ignored_fields(native: Native) -> list[str]:
    assert all(": " in line for line in native.warnings)
    return sorted(line.partition(": ")[0] for line in native.warnings)


def divided(spec: dict[str, Any], **more: Any) -> Native:
    body = {"name": "my-training", "projectId": "default", "clusterId": CLUSTER, "spec": {"command": "true", **spec}}
    training = validated(DistributedSchema(), {**body, **more})
    return to_native(training, training["name"], may_read=lambda _: True, distributed=True)


def test_volumes_are_data_that_the_words_refer_to():
    native = translated(
        {
            "command": "python",
            "args": "train.py --data /mnt/sets/a.jsonl --more=/mnt/sets/deep:/mnt/setsx",
            "workingDir": "/mnt/code/src",
            "environmentVariables": [{"name": "DATA_PATH", "value": "/mnt/claim"}],
            "storage": {
                "hostPath": [
                    {"name": "sets", "path": "/srv/sets", "mountPath": "/mnt/sets", "readOnly": True},
                    {"name": "etc", "path": "/etc", "mountPath": "/mnt/etc"},
                ],
                "pvc": [
                    {"existingPvc": True, "claimName": "team", "path": "/mnt/claim", "readOnly": False},
                    {"name": "new", "claimName": "fresh", "path": "/mnt/fresh"},
                ],
                "secretVolume": [{"secret": "s", "mountPath": "/mnt/s"}],
            },
        }
    )

    framework = native.document["training_config"]["framework"]
    assert native.document["data_config"]["sources"] == [{"path": "/srv/sets"}, {"path": "pvc://team/."}]
    assert framework["custom_command"][3:] == [
        "$(TRAINYARD_DATA_0)/a.jsonl",
        "--more=$(TRAINYARD_DATA_0)/deep:/mnt/setsx",
    ]
    assert native.document["training_config"]["environment"] == {"DATA_PATH": "$(TRAINYARD_DATA_1)"}
    assert ignored_fields(native) == [
        "spec.storage.hostPath.etc",
        "spec.storage.pvc.0.readOnly",
        "spec.storage.pvc.new",
        "spec.workingDir",
    ]
    assert native.document["resource_config"]["mounts"] == [
        {"path": "/mnt/sets", "type": "data", "required": False},
        {"path": "/mnt/claim", "type": "data", "source": 1, "required": False},
    ]


@pytest.mark.parametrize(
    ("storage", "location"),
    [
        (
            {"nfs": [{"server": "nas.example.org", "path": "/vol/sets", "mountPath": "/mnt"}]},
            "nfs/nas.example.org/vol/sets",
        ),
        ({"s3": [{"bucket": "corpora", "path": "/mnt"}]}, "s3/corpora"),
        (
            {"git": [{"repository": "https://git.example.org/team/code.git", "path": "/mnt"}]},
            "git/git.example.org/team/code",
        ),
        (
            {"git": [{"repository": "git@git.example.org:team/code.git", "path": "/mnt"}]},
            "git/git.example.org/team/code",
        ),
        ({"pvc": [{"existingPvc": True, "claimName": "team", "path": "/mnt/"}]}, "pvc://team/."),
    ],
)
def test_each_kind_of_volume_has_a_place_below_the_storage_roots(storage, location):
    native = divided({"storage": storage, "workingDir": "/mnt/sub", "args": "/mnt"})

    assert native.document["data_config"]["sources"] == [{"path": location}]
    assert native.document["training_config"]["framework"]["custom_code_dir"] == f"{location}/sub"
    assert native.document["training_config"]["framework"]["custom_command"] == ["true", "$(TRAINYARD_DATA_0)"]
    assert native.document["resource_config"]["mounts"] == [
        {"path": "/mnt", "type": "data", "required": False},
        {"path": "/mnt/sub", "type": "code", "required": False},
    ]
    assert native.warnings == []


def test_empty_directories_are_mounted_and_those_that_can_not_be_are_named():
    volumes = [
        {"path": "/scratch"},
        {"path": "/cache/", "medium": "Memory", "sizeLimit": "1.5G"},
        {"path": "/dev/shm", "medium": "Memory"},
        {"path": "/sized", "sizeLimit": "1G"},
        {"name": "system", "path": "/usr/lib/x"},
        {"name": "relative", "path": "x"},
        {"path": "/left/out", "exclude": True},
    ]

    native = translated({"command": "ls /scratch", "storage": {"emptyDirVolume": volumes}})

    assert native.document["resource_config"]["mounts"] == [
        {"path": "/scratch", "type": "empty"},
        {"path": "/cache", "type": "memory", "size_mb": 1431},
        {"path": "/sized", "type": "empty"},
    ]
    assert native.document["training_config"]["framework"]["custom_command"] == ["ls", "/scratch"]
    assert ignored_fields(native) == [
        "spec.storage.emptyDirVolume.3.sizeLimit",
        "spec.storage.emptyDirVolume.relative",
        "spec.storage.emptyDirVolume.system",
    ]


def test_volume_that_does_not_lie_at_its_path_has_a_warning() -> None:
    claims = [
        {"existingPvc": True, "claimName": name, "path": path} for name, path in (("a", "/data"), ("b", "/data/"))
    ]
    system = [{"path": "/srv/data", "mountPath": "/usr/data", "name": "own"}]

    native = translated({"command": "ls /usr/data", "storage": {"pvc": claims, "hostPath": system}})

    assert ignored_fields(native) == ["spec.storage.hostPath.own.mountPath", "spec.storage.pvc.1.path"]
    assert [each["path"] for each in native.document["resource_config"]["mounts"]] == ["/data"]
    assert native.document["training_config"]["framework"]["custom_command"] == ["ls", "$(TRAINYARD_DATA_0)"]
