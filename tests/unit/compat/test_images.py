"""Images of the other vocabularies: the job's own where the operator has named registries, else a warning."""

import pytest

from app.compat.images import native_image
from app.compat.modelarts.requests import CreateSchema
from app.compat.modelarts.to_native import to_native as from_modelarts
from app.compat.ome.manifests import JobSpecSchema
from app.compat.ome.to_native import to_native as from_ome
from app.compat.runai.documents.requests import DistributedSchema, TrainingSchema
from app.compat.runai.to_native import to_native as from_runai
from app.domain.errors import BadSpec
from app.http.request_body import validated
from app.schemas.jobs import SubmitJobSchema

IMAGE = "registry.example/team/tool:v1"
NATIVE = {"reference": IMAGE, "pull_policy": "if_missing"}
SCRIPT = {"code_dir": "/team/src/", "boot_file": "/team/src/x.py"}


def runai(spec, *, uses_images=True, master=None):
    given = {"name": "a", "projectId": "default", "clusterId": "c", "spec": {"image": IMAGE, **spec}}
    schema = TrainingSchema() if master is None else DistributedSchema()
    training = validated(schema, given if master is None else {**given, "masterSpec": master})
    distributed = master is not None
    return from_runai(training, "a", may_read=lambda _: False, uses_images=uses_images, distributed=distributed)


def ome(trainer, runtime=None, *, uses_images=True, **spec):
    given = {"runtimeRef": {"name": "r"}, "trainer": {"image": IMAGE, **trainer}, **spec}
    return from_ome("job", validated(JobSpecSchema(), given), runtime or {}, {}, uses_images=uses_images)


def modelarts(algorithm, *, uses_images=True):
    body = {"kind": "job", "metadata": {"name": "a"}, "algorithm": {"engine": {"image_url": IMAGE}, **algorithm}}
    return from_modelarts(validated(CreateSchema(), body), [], lambda _: False, uses_images=uses_images)


def image_of(native):
    return native.document["resource_config"].get("image")


def warned_of(native):
    return [line for line in native.warnings if "image" in line.partition(":")[0].lower()]


@pytest.mark.parametrize(
    "translated",
    [
        lambda uses: runai({"command": "python x.py"}, uses_images=uses),
        lambda uses: ome({"command": ["python", "x.py"]}, uses_images=uses),
        lambda uses: modelarts(SCRIPT, uses_images=uses),
    ],
)
def test_image_is_the_jobs_where_registries_are_named_else_it_has_a_warning(translated):
    with_images, without = translated(True), translated(False)

    assert (image_of(with_images), warned_of(with_images)) == (NATIVE, [])
    assert image_of(without) is None
    (line,) = warned_of(without)
    assert line.endswith("the operator has named no registries (TRAINYARD_IMAGES_SOURCES)")


@pytest.mark.parametrize(
    ("reference", "policy", "native"),
    [
        ("a", "", "always"),
        ("a:latest", "", "always"),
        ("a:v1", "", "if_missing"),
        ("a", "IfNotPresent", "if_missing"),
        ("a:v1", "Always", "always"),
        ("a:v1", "Never", "never"),
    ],
)
def test_pull_policy_without_a_word_is_that_of_kubernetes(reference, policy, native):
    assert native_image(reference, policy)["image"] == {"reference": reference, "pull_policy": native}


@pytest.mark.parametrize(
    ("spec", "framework"),
    [
        ({}, {}),
        ({"args": "--lr 'a b'"}, {"custom_arguments": ["--lr", "a b"]}),
        ({"command": "train", "args": "-x"}, {"custom_command": ["train", "-x"]}),
        (
            {"command": "train", "workingDir": "/workspace"},
            {"custom_command": ["sh", "-c", 'cd "$0" && exec "$@"', "/workspace", "train"]},
        ),
    ],
)
def test_program_of_the_image_runs_where_runai_names_none(spec, framework):
    native = runai(spec)

    found = native.document["training_config"]["framework"]
    assert {
        name: value for name, value in found.items() if name.startswith("custom_") and value is not True
    } == framework
    assert native.warnings == []


@pytest.mark.parametrize(("spec", "more"), [({}, {"uses_images": False}), ({"completions": 2}, {})])
def test_command_is_required_where_an_image_does_not_say_what_runs(spec, more):
    with pytest.raises(BadSpec) as caught:
        runai(spec, **more)

    assert caught.value.field == "spec.command"


def test_master_may_have_other_arguments_for_the_program_of_the_image():
    master, worker = runai({"args": "-y"}, master={"args": "-x"}).document["tasks"]

    assert (master["training_config"], worker["training_config"]) == (
        {"custom_arguments": ["-x"]},
        {"custom_arguments": ["-y"]},
    )


def test_working_directory_without_a_command_is_the_images():
    (line,) = runai({"workingDir": "/workspace"}).warnings

    assert line.startswith("spec.workingDir: without a command the image decides")


@pytest.mark.parametrize(
    ("native", "why"),
    [
        (lambda: ome({"command": ["mpirun", "-np", "2", "python", "x.py"]}), "mpirun starts ranks"),
        (
            lambda: ome({}, modelConfig={"inputModel": "gpt2"}, datasets={"storageUri": "pvc://data/x.jsonl"}),
            "built-in trainers run",
        ),
        (
            lambda: modelarts({"id": "sft", "parameters": [{"name": "base_model", "value": "gpt2"}]}),
            "built-in trainers run",
        ),
    ],
)
def test_image_that_cannot_be_used_has_a_warning(native, why):
    (line,) = warned_of(native())

    assert why in line


OTHER = {"reference": "registry.example/team/other:v1", "pull_policy": "if_missing"}


def images_of_roles(native):
    return [task["resource_config"].get("image") for task in native.document["tasks"]]


def test_image_of_a_master_is_that_of_its_role():
    other = OTHER["reference"]

    differs = runai({"command": "work"}, master={"image": other})
    same = runai({"command": "work"}, master={"image": IMAGE})
    alone = runai({"command": "work", "image": None}, master={"image": other, "imagePullPolicy": "Never"})

    assert (images_of_roles(differs), image_of(differs), warned_of(differs)) == ([OTHER, None], NATIVE, [])
    assert (image_of(same), "tasks" in same.document) == (NATIVE, False)
    assert (images_of_roles(alone), image_of(alone)) == ([{**OTHER, "pull_policy": "never"}, None], None)
    own = runai({"command": "work"}, master={"image": other}, uses_images=False)
    assert [line.partition(":")[0] for line in warned_of(own)] == ["spec.image", "masterSpec.image"]
    validated(SubmitJobSchema(), differs.document)


@pytest.mark.parametrize(
    ("spec", "master", "field"),
    [
        ({"image": "No Image"}, {}, "spec.image"),
        ({}, {"image": "No Image"}, "masterSpec.image"),
        (
            {"compute": {"gpuDevicesRequest": 1, "gpuRequestType": "portion", "gpuPortionRequest": 0.5}},
            {"image": "a/b:1"},
            "masterSpec.image",
        ),
    ],
)
def test_image_of_runai_that_can_not_be_is_refused_by_its_name(spec, master, field):
    with pytest.raises(BadSpec) as caught:
        runai({"command": "work", **spec}, master=master)

    assert caught.value.field == field


def tasks(*images, uses_images=True):
    given = [{"role": f"r{n}", "algorithm": {"engine": {"image_url": image}}} for n, image in enumerate(images)]
    body = {"kind": "job", "metadata": {"name": "a"}, "algorithm": SCRIPT, "tasks": given}
    return from_modelarts(validated(CreateSchema(), body), [], lambda _: False, uses_images=uses_images)


def test_images_of_tasks_that_differ_are_those_of_their_roles():
    native = tasks(IMAGE, "", OTHER["reference"])

    assert (images_of_roles(native), image_of(native), warned_of(native)) == ([NATIVE, None, OTHER], None, [])
    assert "packages" not in native.document["training_config"]
    given = [task["training_config"].get("packages") for task in native.document["tasks"]]
    assert [bool(each) for each in given] == [False, True, False]  # an image has its packages itself
    validated(SubmitJobSchema(), native.document)
    (line,) = warned_of(tasks(IMAGE, OTHER["reference"], uses_images=False))
    assert line.startswith("tasks.algorithm.engine.image_url: ")


def test_image_of_all_tasks_is_the_jobs():
    native = tasks(IMAGE, IMAGE)

    assert (images_of_roles(native), image_of(native)) == ([None, None], NATIVE)


def test_image_of_a_task_that_is_none_is_refused_by_its_name():
    with pytest.raises(BadSpec) as caught:
        tasks(IMAGE, "No Image")

    assert caught.value.field == "tasks.1.algorithm.engine.image_url"
