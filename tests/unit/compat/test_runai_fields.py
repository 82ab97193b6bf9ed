"""What a Run:ai training asks for without effect is named, and once."""

from typing import Any

import pytest

from app.compat.runai.documents.requests import DistributedSchema, TrainingSchema
from app.compat.runai.fields import without_effect
from app.compat.runai.programs import words_of
from app.domain.errors import BadSpec

TRAINING = {"name": "a", "projectId": "default", "clusterId": "c"}


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        ({"image": "x", "category": "Train", "stdin": False}, ["spec.category"]),
        ({"probes": {"readiness": {"periodSeconds": 1, "handler": {"httpGet": {"port": 1}}}}}, []),
        (
            {"ports": [{"container": 80, "external": 30_080, "serviceType": "NodePort", "toolName": "a"}]},
            ["spec.ports.external", "spec.ports.serviceType"],
        ),
        ({"exposedUrls": [{"container": 80, "url": "https://a.example"}]}, ["spec.exposedUrls.url"]),
        ({"exposedUrls": [{"container": 80, "url": "https://a.example", "exclude": True}]}, []),
        ({"podAffinity": {"type": "Required", "key": "a"}}, ["spec.podAffinity"]),
        ({"tolerations": [{"operator": "Exists"}, {"key": "a"}]}, ["spec.tolerations"]),
        ({"tolerations": [{"operator": "Exists", "exclude": True}]}, []),
        ({"security": {"capabilities": ["CHOWN"], "hostIpc": False}}, ["spec.security.capabilities"]),
        ({"security": {"runAsUid": 500, "supplementalGroups": "2,3"}}, ["spec.security.supplementalGroups"]),
        ({"security": {"hostIpc": False, "allowPrivilegeEscalation": False, "runAsNonRoot": True}}, []),
        ({"storage": {"hostPath": [{"mountPropagation": "None"}]}}, []),
        (
            {"storage": {"hostPath": [{"mountPropagation": "HostToContainer"}]}},
            ["spec.storage.hostPath.mountPropagation"],
        ),
        ({"storage": {"s3": [{"accessKeySecret": "a"}], "secretVolume": [{"defaultMode": "0555"}]}}, []),
        (
            {"environmentVariables": [{"name": "A", "configMap": {"name": "a", "key": "b"}}]},
            ["spec.environmentVariables.configMap"],
        ),
        (
            {"compute": {"extendedResources": [{"resource": "a.example/b", "quantity": 2}]}},
            ["spec.compute.extendedResources"],
        ),
    ],
)
def test_what_is_asked_for_without_effect_is_named_once(spec: dict[str, Any], named: list[str]) -> None:
    lines = without_effect(TrainingSchema().load({**TRAINING, "spec": spec}))

    assert sorted(line.partition(": ")[0] for line in lines) == named


def test_fields_of_a_masters_own_spec_without_effect_are_named() -> None:
    master = {
        "command": "true",
        "image": "x",
        "storage": {"git": [{"branch": "a"}]},
        "compute": {"gpuMemoryLimit": "2M"},
        "environmentVariables": [{"name": "A", "userCredential": {"name": "a", "key": "b"}}],
    }

    lines = without_effect(DistributedSchema().load({**TRAINING, "spec": {}, "masterSpec": master}))

    assert sorted(line.partition(": ")[0] for line in lines) == [
        "masterSpec.compute.gpuMemoryLimit",
        "masterSpec.environmentVariables.userCredential",
        "masterSpec.storage",
    ]


def test_a_command_that_linux_takes_in_no_argument_is_refused() -> None:
    with pytest.raises(BadSpec, match="put long scripts into a file") as refused:
        words_of({"command": "x" * 131_073}, "command")
    assert refused.value.field == "spec.command"
    assert words_of({"command": "x " * 65_536}, "command") == ["x"] * 65_536
