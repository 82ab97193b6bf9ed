"""No field of ModelArts' requests is ignored: acted on, refused, or named in a warning."""

from typing import Any

import pytest

from app.compat.modelarts.fields import QUOTAS_FIELDS, SEARCH_FIELDS, WORKSPACE_FIELDS, warnings_of_annotations
from app.compat.modelarts.requests import CreateSchema, InstancesSchema, QuotasSchema, SearchSchema
from app.domain.errors import BadSpec
from app.http.errors import BadShape
from app.http.request_body import validated
from app.schemas.spec.field_verdicts import field_paths
from tests.unit.compat.test_modelarts import ALGORITHM, USUAL, named, translated

INPUT = {"name": "d", "remote": {"obs": {"obs_url": "/bucket/d/"}}}


@pytest.mark.parametrize(
    ("table", "schema"),
    [(SEARCH_FIELDS, SearchSchema), (WORKSPACE_FIELDS, InstancesSchema), (QUOTAS_FIELDS, QuotasSchema)],
)
def test_entries_of_other_requests_are_fields_of_theirs(table, schema):
    assert table.keys() <= set(field_paths(schema()))


@pytest.mark.parametrize(
    ("part", "field"),
    [
        (
            {"algorithm": {**ALGORITHM, "parameters": [{"name": "a", "constraint": {"editable": "yes"}}]}},
            "algorithm.parameters.0.constraint.editable",
        ),
        (
            {"algorithm": {**ALGORITHM, "parameters": [{"name": "a", "constraint": {"colour": "red"}}]}},
            "algorithm.parameters.0.constraint.colour",
        ),
        ({"algorithm": {**ALGORITHM, "summary": {"log_type": "banana"}}}, "algorithm.summary.log_type"),
        ({"spec": {"resource": {"policy": "banana"}}}, "spec.resource.policy"),
        (
            {"spec": {"schedule_policy": {"required_affinity": {"affinity_type": "banana"}}}},
            "spec.schedule_policy.required_affinity.affinity_type",
        ),
        (
            {
                "spec": {
                    "schedule_policy": {"required_affinity": {"affinity_type": "cabinet", "affinity_group_size": 0}}
                }
            },
            "spec.schedule_policy.required_affinity.affinity_group_size",
        ),
        (
            {"spec": {"volumes": [{"nfs": {"read_only": 1, "nfs_server_path": "a:/b", "local_path": "/b"}}]}},
            "spec.volumes.0.nfs.read_only",
        ),
        ({"spec": {"volumes": ["banana"]}}, "spec.volumes.0"),
        ({"spec": {"log_export_path": {"obs_url": 7}}}, "spec.log_export_path.obs_url"),
        ({"endpoints": {"ssh": {"key_pair_names": "banana"}}}, "endpoints.ssh.key_pair_names"),
    ],
)
def test_garbage_is_refused_by_the_name_of_its_field(part, field):
    body = {"kind": "job", "metadata": {"name": "minist"}, "algorithm": ALGORITHM, **part}

    with pytest.raises(BadShape) as refused:
        validated(CreateSchema(), body)

    assert field in [name for name, _ in refused.value.details]


def test_what_has_no_effect_is_named_with_the_reason():
    spec = {
        "volumes": [{"nfs": {"nfs_server_path": "nas:/x", "local_path": "/x", "read_only": False}}],
        "log_export_path": {"obs_url": "obs://b/logs", "host_path": "/srv/logs"},
        "notification": {"topic_urn": "urn:x", "events": ["Failed"]},
        "resource": {"policy": "regular", "flavor_name": "x", "flavor_detail": {"flavor_type": "CPU"}},
    }
    algorithm = {key: value for key, value in ALGORITHM.items() if key != "engine"}
    summary = {"log_type": "tensorboard", "log_dir": {"pfs": {"pfs_path": "obs://b/l"}}}

    native = translated(
        {**algorithm, "summary": summary},
        spec=spec,
        endpoints={"ssh": {"key_pair_names": ["k"]}},
        metadata={"workspace_id": "7"},
    )

    assert named(native) == [
        "algorithm.summary.log_type",
        "algorithm.summary.log_dir.pfs.pfs_path",
        "spec.resource.flavor_name",
        "spec.resource.flavor_detail",
        "spec.notification.topic_urn",
        "spec.notification.events",
        "endpoints.ssh.key_pair_names",
        "metadata.workspace_id",
        "spec.log_export_path.host_path",
        "spec.volumes.0.nfs.read_only",
    ]
    assert all(line.partition(": ")[2] for line in native.warnings)


@pytest.mark.parametrize(
    ("annotations", "warned_of"),
    [
        ({"tensorboard/enable": "true", "fault-tolerance/hang-retry": "true"}, []),
        ({"jupyter-lab/enable": "false", "mindstudio-insight/enable": "false"}, []),
        ({"jupyter-lab/enable": "true"}, []),
        ({"fault-tolerance/hang-retry": "false"}, []),
        ({"fault-tolerance/hang-retry": "false", "fault-tolerance/job-retry-num": "2"}, []),
        ({"job_template": "Template RL", "owner": "me"}, ["job_template", "owner"]),
    ],
)
def test_annotations_are_applied_or_named_in_a_warning(annotations, warned_of):
    algorithm = {key: value for key, value in ALGORITHM.items() if key != "engine"}

    native = translated(algorithm, metadata={"annotations": annotations})

    assert named(native) == [f"metadata.annotations.{name}" for name in warned_of]


@pytest.mark.parametrize(
    ("algorithm", "fields"),
    [
        (
            {
                "id": "sft",
                "parameters": [{"name": "base_model", "value": "org/m"}],
                "code_dir": "obs://b/x/",
                "working_dir": "/home/x",
                "inputs": [{"name": "d", "local_dir": "/home/d", "remote": {"obs": {"obs_url": "obs://b/d"}}}],
            },
            ["code_dir", "working_dir", "inputs.local_dir"],
        ),
        ({"command": "python x.py", "boot_file": "obs://b/x.py"}, ["boot_file"]),
        ({"command": "true", "working_dir": "/home/elsewhere"}, ["working_dir"]),
    ],
)
def test_redundant_field_is_named(algorithm, fields):
    assert named(translated(algorithm)) == [f"algorithm.{name}" for name in fields]


@pytest.mark.parametrize(
    ("algorithm", "mounts"),
    [
        ({"code_dir": "obs://b/src/"}, [(f"{USUAL}/src", "code")]),
        ({"code_dir": "obs://b/src/", "local_code_dir": "/home/me/"}, [("/home/me", "code")]),
        ({"code_dir": "file:///srv/src", "local_code_dir": "/home/me"}, [("/home/me", "code"), ("/srv/src", "code")]),
        (
            {
                "inputs": [
                    {"name": "a", "remote": {"obs": {"obs_url": "obs://b/a"}}},
                    {"name": "b", "local_dir": "/home/b/", "remote": {"obs": {"obs_url": "obs://b/b"}}},
                    {"name": "c", "local_dir": "/etc/c", "remote": {"obs": {"obs_url": "obs://b/c"}}},
                ],
                "outputs": [
                    {"name": "x", "local_dir": "/home/x", "remote": {"obs": {"obs_url": "obs://b/o/x"}}},
                    {"name": "y", "local_dir": "/home/y", "remote": {"obs": {"obs_url": "obs://b/o/y"}}},
                ],
            },
            [("/home/b", "data", 1), ("/home/x", "output", "x"), ("/home/y", "output", "y")],
        ),
    ],
)
def test_directories_lie_at_the_paths_that_the_document_names(algorithm, mounts):
    native = translated({"command": "true", **algorithm})

    found = native.document["resource_config"]["mounts"]
    names = [
        (each["path"], each["type"], *(each[key] for key in ("source", "sub_path") if key in each)) for each in found
    ]
    assert names == mounts
    assert not any(each["required"] for each in found)


@pytest.mark.parametrize(
    ("algorithm", "expected"),
    [
        ({"inputs": [{**INPUT, "local_dir": "/usr/d"}]}, "algorithm.inputs.local_dir: /usr/d belongs to the system"),
        ({"outputs": [{**INPUT, "local_dir": "d"}]}, "algorithm.outputs.local_dir: d is not absolute"),
        (
            {"inputs": [{**INPUT, "local_dir": "/home/d"}, {**INPUT, "name": "e", "local_dir": "/home/d/"}]},
            "algorithm.inputs.local_dir: /home/d is the path of another one",
        ),
    ],
)
def test_channel_that_does_not_lie_at_its_path_has_a_warning(algorithm, expected):
    (line,) = translated({"command": "ls", **algorithm}).warnings

    assert line.startswith(expected)


def nfs(path: str, **more: Any) -> dict[str, Any]:
    return {"nfs": {"nfs_server_path": path, "local_path": f"/home/{path[-1]}", **more}}


PFS = {"pfs": {"pfs_path": "/bucket/c", "local_path": "/home/c/"}}
OBS = {"obs": {"obs_path": "obs://bucket/e", "local_path": "/home/e"}}
CODE = {"code_dir": "obs://b/src/", "local_code_dir": "/home/code"}


def test_volumes_are_data_at_their_paths():
    volumes = [nfs("nas:/a", read_only=True), nfs("nas:/x/b", read_only=False), PFS, OBS]
    algorithm = {
        "command": "ls /home/a /home/c",
        "inputs": [{"name": "d", "remote": {"obs": {"obs_url": "obs://b/d"}}}],
    }

    native = translated(algorithm, spec={"volumes": volumes})
    built_in = translated(
        {"id": "sft", "parameters": [{"name": "base_model", "value": "m"}]}, spec={"volumes": volumes}
    )

    places = ["obs://b/d", "nfs/nas/a", "nfs/nas/x/b", "obs://bucket/c", "obs://bucket/e"]
    assert native.document["data_config"]["sources"] == [{"path": place} for place in places]
    assert native.document["resource_config"]["mounts"] == [
        {"path": f"/home/{name}", "type": "data", "source": number, "required": False}
        for number, name in enumerate("abce", 1)
    ]
    assert native.document["training_config"]["framework"]["custom_command"][2].startswith(
        "ls $(TRAINYARD_DATA_1) $(TRAINYARD_DATA_3) "
    )
    assert named(native) == ["spec.volumes.1.nfs.read_only"]
    assert named(built_in) == [f"spec.volumes.{n}.{kind}" for n, kind in enumerate(("nfs", "nfs", "pfs", "obs"))]


@pytest.mark.parametrize(
    ("volumes", "field"),
    [
        ([nfs("192.0.2.1:/c")], "spec.volumes.0.nfs.nfs_server_path"),
        ([{"obs": {**OBS["obs"], "local_path": "/usr/lib"}}], "spec.volumes.0.obs.local_path"),
        ([{"obs": {**OBS["obs"], "local_path": "data"}}], "spec.volumes.0.obs.local_path"),
        ([PFS, nfs("nas:/c")], "spec.volumes.1.nfs.local_path"),
        ([{"obs": {**OBS["obs"], "local_path": "/home/code/"}}], "spec.volumes.0.obs.local_path"),
        ([{"obs": {**OBS["obs"], "local_path": "/"}}], "spec.volumes.0.obs.local_path"),
        ([{}], "spec.volumes.0"),
        ([{**PFS, **OBS}], "spec.volumes.0"),
    ],
)
def test_volumes_that_can_not_be_mounted_are_refused(volumes, field):
    with pytest.raises(BadSpec) as refused:
        translated({**CODE, "command": "ls"}, spec={"volumes": volumes})

    assert refused.value.field == field


def test_later_annotations_about_faults_are_named():
    lines = warnings_of_annotations({"fault-tolerance/job-retry-num": "3", "owner": "me"})

    assert [line.partition(": ")[0] for line in lines] == ["metadata.annotations.fault-tolerance/job-retry-num"]


def framework(**algorithm: Any) -> dict[str, Any]:
    found: dict[str, Any] = translated(algorithm).document["training_config"]["framework"]
    return found


@pytest.mark.parametrize(
    ("algorithm", "start"),
    [
        ({"code_dir": "obs://b/src/", "working_dir": f"{USUAL}/src/inner/"}, "$(TRAINYARD_RUN_DIR)/code/inner"),
        (
            {"code_dir": "obs://b/src/", "local_code_dir": "/home/me/", "working_dir": "/home/me"},
            "$(TRAINYARD_RUN_DIR)/code",
        ),
        ({"code_dir": "file:///srv/src", "working_dir": "/srv/src/inner"}, "$(TRAINYARD_RUN_DIR)/code/inner"),
        (
            {
                "code_dir": "obs://b/src/",
                "working_dir": "/home/out/logs",
                "outputs": [{"name": "o", "local_dir": "/home/out", "remote": {"obs": {"obs_url": "obs://b/o"}}}],
            },
            "$(TRAINYARD_OUTPUT_DIR)/logs",
        ),
    ],
)
def test_script_and_command_start_in_the_working_directory(algorithm, start):
    script = framework(**algorithm, boot_file=f"{algorithm['code_dir'].rstrip('/')}/a/x.py")
    command = framework(**algorithm, command="ls")

    code = "$(TRAINYARD_RUN_DIR)/code"
    assert script["custom_command"][3:5] == [start, f"{code}/a/x.py"]
    assert "custom_script_path" not in script
    assert command["custom_command"][2].startswith(f"cd '{start}' || exit\nls")


def test_words_about_the_code_become_the_path_that_jobs_see():
    assert framework(command="python /srv/src/x.py", code_dir="file:///srv/src/")["custom_command"] == [
        "bash",
        "-c",
        "python $(TRAINYARD_RUN_DIR)/code/x.py",
    ]
    assert framework(command=f"python {USUAL}/src/x.py", code_dir="/b/src/")["custom_command"] == [
        "bash",
        "-c",
        "python $(TRAINYARD_RUN_DIR)/code/x.py",
    ]
    assert framework(command="ls /", code_dir="file:///")["custom_command"] == ["bash", "-c", "ls /"]
