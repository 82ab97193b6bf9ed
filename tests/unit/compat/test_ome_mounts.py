"""Paths of data and output in OME's manifests: mounts of commands."""

from typing import Any

import pytest

from app.compat.ome.manifests import JobSpecSchema
from app.compat.ome.runtimes import BUILT_IN
from app.compat.ome.to_native import Native, to_native
from app.http.request_body import validated

RUNTIME = "pytorch-runtime"


def translated(trainer: dict[str, Any], *, data: str = "/mnt/data", output: str = "/mnt/out/") -> Native:
    spec = {
        "runtimeRef": {"name": RUNTIME},
        "trainer": trainer,
        "modelConfig": {"inputModel": "org/m", "outputModel": {"storageUri": "oci://b/out", "path": output}},
        "datasets": {"storageUri": "oci://b/data", "path": data},
    }
    return to_native("job", validated(JobSpecSchema(), spec), BUILT_IN[RUNTIME], {})


def test_data_and_output_lie_at_their_paths_for_a_command():
    native = translated({"command": ["python", "train.py"]})

    assert native.document["resource_config"]["mounts"] == [
        {"path": "/mnt/data", "type": "data", "required": False},
        {"path": "/mnt/out", "type": "output", "required": False},
    ]
    assert native.warnings == []


def test_built_in_trainer_has_no_mounts_and_says_so():
    native = translated({"args": ["--max_steps", "1"]})

    assert "mounts" not in native.document["resource_config"]
    assert [line.partition(":")[0] for line in native.warnings] == [
        "spec.datasets.path",
        "spec.modelConfig.outputModel.path",
    ]


@pytest.mark.parametrize("path", ["/usr/share/data", "data"])
def test_path_that_no_job_may_have_is_named(path):
    native = translated({"command": ["true"]}, data=path)

    assert [each["path"] for each in native.document["resource_config"]["mounts"]] == ["/mnt/out"]
    assert [line.partition(f" {path} ")[0] for line in native.warnings] == ["spec.datasets.path:"]
