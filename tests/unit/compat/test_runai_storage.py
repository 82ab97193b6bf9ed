"""Volumes of Run:ai documents: data that a job's words refer to."""

from typing import Any

import pytest

from app.compat.runai.documents.requests import DistributedSchema, TrainingSchema
from app.compat.runai.owners import Owner
from app.compat.runai.to_native import Native, to_native
from app.compat.runai.volume_claims import name_of_claim
from app.domain.errors import BadSpec
from app.http.request_body import validated
from app.schemas.spec.resource_config import CLAIM_NAME

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
                "hostPath": [{"name": "sets", "path": "/srv/sets", "mountPath": "/mnt/sets", "readOnly": True}],
                "pvc": [
                    {"existingPvc": True, "claimName": "team", "path": "/mnt/claim", "readOnly": False},
                    {"name": "new", "claimName": "fresh", "path": "/mnt/fresh"},
                ],
                "secretVolume": [{"secret": "s", "mountPath": "/mnt/s"}],
            },
        }
    )

    framework = native.document["training_config"]["framework"]
    assert native.document["data_config"]["sources"] == [{"path": "/srv/sets"}]
    assert framework["custom_command"][3:] == [
        "$(TRAINYARD_DATA_0)/a.jsonl",
        "--more=$(TRAINYARD_DATA_0)/deep:/mnt/setsx",
    ]
    assert native.document["training_config"]["environment"] == {"DATA_PATH": "/mnt/claim"}
    assert ignored_fields(native) == ["spec.workingDir"]
    assert native.document["resource_config"]["mounts"] == [
        {"path": "/mnt/sets", "type": "data", "required": False},
        {"path": "/mnt/claim", "type": "claim", "claim": "team"},
        {"path": "/mnt/fresh", "type": "claim", "claim": "fresh", "create": True},
    ]


@pytest.mark.parametrize(
    ("volume", "mount"),
    [
        ({"existingPvc": True, "claimName": "team", "readOnly": False}, {"type": "claim", "claim": "team"}),
        ({"claimName": "c", "readOnly": True}, {"type": "claim", "claim": "c", "create": True, "read_only": True}),
        ({"name": "Big_Data"}, {"type": "claim", "claim": "my-training-big-data-8aa9e0c4", "create": True}),
        ({}, {"type": "claim", "claim": "my-training-0-23e7a829", "create": True}),
        (
            {"claimName": "c", "claimInfo": {"accessModes": {"readOnlyMany": True}}},
            {"type": "claim", "claim": "c", "create": True, "read_only": True},
        ),
        (
            {"claimName": "c", "claimInfo": {"accessModes": {"readOnlyMany": True, "readWriteMany": True}}},
            {"type": "claim", "claim": "c", "create": True},
        ),
        ({"claimName": "c", "ephemeral": True}, {"type": "empty"}),
        ({"ephemeral": True, "claimInfo": {"size": "2Mi"}}, {"type": "empty", "size_mb": 2}),
    ],
)
def test_claim_that_is_written_to_or_new_is_a_mount(volume, mount):
    native = translated({"command": "ls /data/x", "storage": {"pvc": [{"path": "/data", **volume}]}})

    assert native.document["resource_config"]["mounts"] == [{"path": "/data", **mount}]
    assert native.document["data_config"]["sources"] == []
    assert native.document["training_config"]["framework"]["custom_command"] == ["ls", "/data/x"]
    assert native.warnings == []


@pytest.mark.parametrize("volume", [{}, {"existingPvc": True, "readOnly": False}])
def test_name_that_no_claim_to_write_to_may_have_is_refused_at_its_field(volume):
    with pytest.raises(BadSpec, match="must be the name of a volume claim") as caught:
        translated({"storage": {"pvc": [{"name": "a", "path": "/data", "claimName": "My_Claim", **volume}]}})

    assert caught.value.field == "spec.storage.pvc.a.claimName"


def test_new_claims_of_workloads_whose_names_run_together_differ():
    names = {name_of_claim(*each) for each in (("a-b", "c"), ("a", "b-c"), ("a", "b_c"), ("a", "x" * 300))}

    assert len(names) == 4
    assert all(map(CLAIM_NAME.fullmatch, names))
    assert name_of_claim("a-b", "c") == name_of_claim("a-b", "c")


def test_new_claim_for_nothing_is_refused():
    with pytest.raises(BadSpec, match="more than 0; leave it out") as refused:
        translated({"storage": {"pvc": [{"path": "/data", "claimInfo": {"size": "0Gi"}}]}})

    assert str(refused.value.field).startswith("spec.storage.pvc.")
    assert str(refused.value.field).endswith(".claimInfo.size")


def test_what_a_new_claim_asks_of_a_storage_class_is_named():
    info = {"size": "1G", "storageClass": "fast", "volumeMode": "Filesystem", "addedAttrValues": [{"key": "a"}]}

    native = translated({"storage": {"pvc": [{"path": "/data", "claimInfo": info}]}})

    assert ignored_fields(native) == [
        "spec.storage.pvc.claimInfo.addedAttrValues.key",
        "spec.storage.pvc.claimInfo.storageClass",
    ]
    assert native.document["resource_config"]["mounts"][0]["size_mb"] == 954  # a gigabyte


@pytest.mark.parametrize(
    "volume",
    [
        {"existingPvc": True, "claimName": "c"},
        {"existingPvc": True, "claimName": "c", "readOnly": False},
        {"ephemeral": True, "readOnly": True},
        {"readOnly": True},
    ],
)
def test_size_of_a_claim_that_is_not_made_and_written_to_is_named(volume):
    native = translated({"storage": {"pvc": [{"name": "a", "path": "/data", "claimInfo": {"size": "1Gi"}, **volume}]}})

    assert ignored_fields(native) == ["spec.storage.pvc.a.claimInfo.size"]
    assert "size_mb" not in str(native.document)


@pytest.mark.parametrize(
    ("volume", "why"),
    [
        ({"path": "data"}, "spec.storage.pvc.a: the mount path must be absolute"),
        ({"path": "/usr/data"}, "spec.storage.pvc.a: /usr/data belongs to the system"),
        ({"path": "/data", "claimInfo": {"volumeMode": "Block"}}, "spec.storage.pvc.a: claims are directories, and no"),
        ({"path": "/cache"}, "spec.storage.pvc.a: /cache is the path of another volume"),
        ({"path": "/mnt"}, "spec.storage.pvc.a: /mnt/cache would be mounted in it"),
    ],
)
def test_new_claim_that_can_not_be_mounted_is_left_out_with_the_reason(volume, why):
    empty = [{"path": "/cache"}, {"path": "/mnt/cache"}]

    native = translated({"storage": {"pvc": [{"name": "a", **volume}], "emptyDirVolume": empty}})

    assert [line for line in native.warnings if line.startswith(why)], native.warnings
    assert [each["type"] for each in native.document["resource_config"]["mounts"]] == ["empty", "empty"]


def test_existing_claim_with_another_volume_in_it_is_read_only_and_says_so():
    claim = {"existingPvc": True, "claimName": "team", "path": "/work", "readOnly": False}

    native = translated({"storage": {"pvc": [claim], "emptyDirVolume": [{"path": "/work/tmp"}]}})

    assert native.document["data_config"]["sources"] == [{"path": "pvc://team/."}]
    assert native.warnings == ["spec.storage.pvc.0.readOnly: is read-only: /work/tmp would be mounted in it"]


def test_working_directory_in_a_claim_that_is_written_to_is_that_directory():
    claim = {"existingPvc": True, "claimName": "team", "path": "/work", "readOnly": False}

    native = translated({"command": "python train.py", "workingDir": "/work/src", "storage": {"pvc": [claim]}})

    framework = native.document["training_config"]["framework"]
    assert framework["custom_command"] == ["sh", "-c", 'cd "$0" && exec "$@"', "/work/src", "python", "train.py"]
    assert "custom_code_dir" not in framework
    assert native.warnings == []


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
        {"path": "/sized", "type": "empty", "size_mb": 954},
    ]
    assert native.document["training_config"]["framework"]["custom_command"] == ["ls", "/scratch"]
    assert ignored_fields(native) == ["spec.storage.emptyDirVolume.relative", "spec.storage.emptyDirVolume.system"]


@pytest.mark.parametrize("path", ["/etc", "/etc/", "/"])
def test_directory_of_the_node_that_jobs_may_not_read_is_refused(path: str) -> None:
    volume = {"name": "etc", "path": path, "mountPath": "/mnt/etc"}

    with pytest.raises(BadSpec, match="must lie below a storage root of the operator") as refused:
        translated({"command": "ls /mnt/etc", "storage": {"hostPath": [volume]}})

    assert refused.value.field == "spec.storage.hostPath.etc.path"
    assert ignored_fields(translated({"command": "ls", "storage": {"hostPath": [{**volume, "exclude": True}]}})) == []


def test_volume_that_does_not_lie_at_its_path_has_a_warning() -> None:
    claims = [
        {"existingPvc": True, "claimName": name, "path": path} for name, path in (("a", "/data"), ("b", "/data/"))
    ]
    system = [{"path": "/srv/data", "mountPath": "/usr/data", "name": "own"}]

    native = translated({"command": "ls /usr/data", "storage": {"pvc": claims, "hostPath": system}})

    assert ignored_fields(native) == ["spec.storage.hostPath.own.mountPath", "spec.storage.pvc.1.path"]
    assert [each["path"] for each in native.document["resource_config"]["mounts"]] == ["/data"]
    assert native.document["training_config"]["framework"]["custom_command"] == ["ls", "$(TRAINYARD_DATA_0)"]


def test_bucket_with_keys_or_a_service_is_fetched_and_no_directory() -> None:
    volumes = [
        {"name": "own", "bucket": "own", "path": "/own", "accessKeySecret": "keys", "secretKeyOfSecretKey": "mine"},
        {"name": "public", "bucket": "public", "path": "/public", "url": "https://s3.example.org"},
        {"bucket": "ours", "path": "/ours", "secretKeyOfSecretKey": "unused"},
    ]

    native = divided({"command": "ls /own/a", "storage": {"s3": volumes}, "workingDir": "/public/src"})

    own, public = native.buckets
    assert (own.source, own.name, own.url) == (0, "own", "")
    keys = {name: (each.name, each.key, each.field) for name, each in own.login.items()}
    field = "spec.storage.s3.own.accessKeySecret"
    assert keys == {"access_key_id": ("keys", "AccessKeyId", field), "secret_access_key": ("keys", "mine", field)}
    assert (public.source, public.url, public.login) == (1, "https://s3.example.org", {})
    assert [each["path"] for each in native.document["data_config"]["sources"]] == ["s3/own", "s3/public", "s3/ours"]
    framework = native.document["training_config"]["framework"]
    assert framework["custom_command"][3:] == ["$(TRAINYARD_DATA_1)/src", "ls", "$(TRAINYARD_DATA_0)/a"]
    assert "custom_code_dir" not in framework
    assert native.warnings == ["spec.storage.s3.2.secretKeyOfSecretKey: there is no accessKeySecret"]
