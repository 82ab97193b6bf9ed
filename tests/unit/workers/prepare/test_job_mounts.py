"""Mounts of a job, resolved on a node."""

from pathlib import Path
from typing import Any

import pytest

from app.domain.spec.model import JobDocument
from trainyard.protocol.run_spec import RunSpec
from workers.attempt_failed import AttemptFailed
from workers.prepare.input_library import LocalData, LocalModel, Sources
from workers.prepare.job_mounts import Mounted, check_placements, with_mounts
from workers.run_dir.layout import RunDirectory
from workers.sandbox.sandbox import Bubblewrap, ProcessGroup
from workers.sandbox.spec import FilesystemView, Placement


@pytest.fixture
def run(tmp_path):
    made = RunDirectory(tmp_path / "run")
    made.make()
    return made


@pytest.fixture
def sources(tmp_path):
    """Data with a directory and a link that leads out of it, code, and a model in a hub's cache."""
    data, code, hub = tmp_path / "sets", tmp_path / "code", tmp_path / "models--org--name"
    snapshot = hub / "snapshots" / "1"
    for directory in (data / "images", code / "src", snapshot, hub / "blobs"):
        directory.mkdir(parents=True)
    (data / "out").symlink_to(code)
    (code / "train.py").touch()
    (hub / "blobs" / "abc").write_text("weights")
    (snapshot / "model.bin").symlink_to("../../blobs/abc")
    return Sources(
        model=LocalModel(path=snapshot, visible=hub),
        tokenizer=None,
        data=(LocalData(location="sets", files=(), path=data, visible=(data,)),),
        script=code / "train.py",
        code=code,
    )


def mounted(run, sources, *mounts: dict[str, Any], sandbox: Any = None, **more: Any) -> Mounted:
    document = JobDocument.from_json({"resource_config": {"mounts": list(mounts)}})
    spec = RunSpec(run_dir=run.path, framework="CUSTOM", training_type="SFT", **more)
    return with_mounts(spec, document, sources, run, sandbox or Bubblewrap())


def test_inputs_are_read_only_and_directories_of_the_attempt_writable(run, sources):
    found = mounted(
        run,
        sources,
        {"path": "/data", "type": "data"},
        {"path": "/images", "type": "data", "sub_path": "images"},
        {"path": "/code", "type": "code"},
        {"path": "/out", "type": "output", "sub_path": "a/b"},
        {"path": "/scratch", "type": "empty"},
        {"path": "/memory", "type": "memory", "size_mb": 5},
    ).placements

    data = sources.data[0].path
    assert found == (
        Placement(target=Path("/data"), source=data),
        Placement(target=Path("/images"), source=data / "images"),
        Placement(target=Path("/code"), source=sources.code),
        Placement(target=Path("/out"), source=run.output / "a/b", writable=True),
        Placement(target=Path("/scratch"), source=run.path / "empty/4", writable=True),
        Placement(target=Path("/memory"), size_mb=5),
    )
    assert all(each.source is None or each.source.is_dir() for each in found)


def test_model_of_a_hub_has_its_files_at_the_mount_path(run, sources):
    (placement,) = mounted(run, sources, {"path": "/model", "type": "model"}).placements
    again = mounted(run, sources, {"path": "/model", "type": "model"}).placements

    assert again == (placement,)
    assert placement.source is not None
    assert (placement.source / "model.bin").readlink() == sources.model.visible / "blobs" / "abc"


def test_script_gets_its_inputs_by_their_mount_paths(run, sources):
    code = run.path / "code"
    paths = {"data_paths": ("/srv/a", "/srv/b"), "model_path": "/srv/m", "script": str(code / "x/train.py")}

    spec = mounted(
        run,
        sources,
        {"path": "/part", "type": "data", "sub_path": "images"},
        {"path": "/data", "type": "data"},
        {"path": "/model", "type": "model"},
        {"path": "/code", "type": "code"},
        {"path": "/code2", "type": "code"},
        **paths,
        directory=str(run.path / "work"),
    ).spec

    assert (spec.data_paths, spec.model_path) == (("/data", "/srv/b"), "/model")
    assert (spec.script, spec.directory) == ("/code/x/train.py", str(run.path / "work"))


@pytest.mark.parametrize("part", ["missing", "out", "out/src"])
def test_part_that_is_not_in_the_input_fails_the_job(run, sources, part):
    with pytest.raises(AttemptFailed, match=rf"mounts\.0\.sub_path: {part} does not exist in the data") as caught:
        mounted(run, sources, {"path": "/x", "type": "data", "sub_path": part})

    assert caught.value.error_type == "INVALID_CONFIG"


def test_links_of_an_earlier_attempt_in_the_output_are_not_followed(run, sources, tmp_path):
    (run.output / "x").symlink_to(tmp_path)

    with pytest.raises(AttemptFailed, match="x does not exist in the output"):
        mounted(run, sources, {"path": "/x", "type": "output", "sub_path": "x"})


def test_nothing_is_mounted_without_a_sandbox(run, sources):
    found = mounted(run, sources, {"path": "/data", "type": "data"}, sandbox=ProcessGroup(), data_paths=("/srv/a",))

    assert (found.placements, found.spec.data_paths) == ((), ("/srv/a",))


def test_path_that_is_in_the_way_fails_the_job(run):
    view = FilesystemView(run_dir=run.path, data_dir=run.path, placements=(Placement(target=run.path / "work"),))

    with pytest.raises(
        AttemptFailed, match=r"resource_config\.mounts: .* is in the way of the run directory"
    ) as caught:
        check_placements(view)

    assert caught.value.error_type == "INVALID_CONFIG"
