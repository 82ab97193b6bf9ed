"""Mounts of a job, resolved on a node."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.domain.spec.locations.paths import ReadingRules
from app.domain.spec.model import JobDocument, OutputConfig
from config.fetching import FetchSettings
from trainyard.protocol.run_spec import RunSpec
from workers.attempt_failed import AttemptFailed
from workers.prepare.inputs.input_library import JobInputs, Library, LocalData, LocalModel
from workers.prepare.job_mounts import Mounted, check_placements, with_mounts
from workers.prepare.volume_claims import refuse_new_outputs
from workers.run_dir.layout import RunDirectory
from workers.sandbox.sandbox import Bubblewrap, ProcessGroup
from workers.sandbox.spec import FilesystemView, PlacedPath


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
    (data / "loop").symlink_to("loop")
    (code / "train.py").touch()
    (hub / "blobs" / "abc").write_text("weights")
    (snapshot / "model.bin").symlink_to("../../blobs/abc")
    return JobInputs(
        model=LocalModel(path=snapshot, visible=hub),
        tokenizer=None,
        data=(LocalData(location="sets", files=(), path=data, visible=(data,)),),
        script=code / "train.py",
        code=code,
    )


def library_of(directory, project="default", **fetch: Any) -> Library:
    """What jobs of a project may read, with claims below the directory."""
    return Library(
        rules=ReadingRules(roots=()),
        cache_dir=directory / "cache",
        project=project,
        project_of_job=lambda _: None,
        fetch=FetchSettings(pvc_dir=directory / "claims", **fetch),
        may_make_claims=lambda: True,
    )


def mounted(
    run, sources, *mounts: dict[str, Any], sandbox: Any = None, library: Library | None = None, **more: Any
) -> Mounted:
    document = JobDocument.from_json({"resource_config": {"mounts": list(mounts)}})
    spec = RunSpec(run_dir=run.path, framework="CUSTOM", training_type="SFT", **more)
    return with_mounts(spec, document, sources, run, sandbox or Bubblewrap(), library or library_of(run.path.parent))


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
        PlacedPath(target=Path("/data"), source=data),
        PlacedPath(target=Path("/images"), source=data / "images"),
        PlacedPath(target=Path("/code"), source=sources.code),
        PlacedPath(target=Path("/out"), source=run.output / "a/b", writable=True),
        PlacedPath(target=Path("/scratch"), source=run.path / "empty/4", writable=True),
        PlacedPath(target=Path("/memory"), size_mb=5),
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
    script = str(code / "x/train.py")
    paths: dict[str, Any] = {"data_paths": ("/srv/a", "/srv/b"), "model_path": "/srv/m", "script": script}

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


@pytest.mark.parametrize("part", ["missing", "out", "out/src", "loop"])
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
    view = FilesystemView(run_dir=run.path, data_dir=run.path, placements=(PlacedPath(target=run.path / "work"),))

    with pytest.raises(
        AttemptFailed, match=r"resource_config\.mounts: .* is in the way of the run directory"
    ) as caught:
        check_placements(view)

    assert caught.value.error_type == "INVALID_CONFIG"


def claim_at(path: Path) -> Path:
    path.mkdir(parents=True)
    return path


def test_claim_of_the_project_is_writable_or_read_only_and_may_be_a_part(run, sources, tmp_path):
    claim = claim_at(tmp_path / "claims" / "default" / "scratch")
    (claim / "runs").mkdir()

    found = mounted(
        run,
        sources,
        {"path": "/scratch", "type": "claim", "claim": "scratch"},
        {"path": "/old", "type": "claim", "claim": "scratch", "sub_path": "runs", "read_only": True},
    )

    assert found.placements == (
        PlacedPath(target=Path("/scratch"), source=claim, writable=True),
        PlacedPath(target=Path("/old"), source=claim / "runs"),
    )
    assert found.claims == (claim,)


def test_claim_is_made_once_and_keeps_what_lies_in_it(run, sources, tmp_path):
    claim, mount = tmp_path / "claims" / "default" / "new", {"path": "/x", "type": "claim", "claim": "new"}
    (tmp_path / "claims").mkdir()
    with pytest.raises(AttemptFailed, match=r"mounts\.0\.claim: this node has no volume claim new of the project"):
        mounted(run, sources, mount)

    mounted(run, sources, {**mount, "create": True})
    (claim / "kept").touch()
    mounted(run, sources, {**mount, "create": True})

    assert claim.stat().st_mode & 0o777 == 0o700
    assert (claim / "kept").exists()


def test_project_that_only_uses_claims_makes_none_for_jobs_that_were_accepted_before(run, sources, tmp_path):
    only_uses = replace(library_of(tmp_path), may_make_claims=lambda: False)
    claim_at(tmp_path / "claims" / "default" / "there")
    mount = {"path": "/x", "type": "claim", "create": True}

    assert mounted(run, sources, {**mount, "claim": "there"}, library=only_uses).placements
    with pytest.raises(AttemptFailed, match=r"mounts\.0\.claim: jobs of the project default make no volume claims"):
        mounted(run, sources, {**mount, "claim": "new"}, library=only_uses)
    with pytest.raises(AttemptFailed, match=r"output_config\.log_path: jobs of the project default make no"):
        refuse_new_outputs(
            only_uses.fetch, "default", OutputConfig(output_path="pvc://there/x", log_path="pvc://new/logs")
        )

    refuse_new_outputs(only_uses.fetch, "default", OutputConfig(output_path="pvc://there/x", log_path="file:///logs"))
    assert not (tmp_path / "claims" / "default" / "new").exists()


def test_claim_is_not_made_where_its_file_system_is_missing(run, sources, tmp_path):
    elsewhere = Library(
        rules=ReadingRules(roots=()),
        cache_dir=tmp_path / "data" / "cache",
        project="default",
        project_of_job=lambda _: None,
        fetch=FetchSettings(pvc_dir=tmp_path / "unmounted"),
    )

    with pytest.raises(AttemptFailed, match="TRAINYARD_FETCH_PVC_DIR names does not exist on this node"):
        mounted(run, sources, {"path": "/x", "type": "claim", "claim": "new", "create": True}, library=elsewhere)

    assert not (tmp_path / "unmounted").exists()


def test_claim_of_all_projects_is_read_unless_the_operator_lets_jobs_write(run, sources, tmp_path):
    claim, mount = claim_at(tmp_path / "claims" / "all"), {"path": "/x", "type": "claim", "claim": "all"}
    shared = library_of(tmp_path, pvc_shared=("all",))
    with pytest.raises(AttemptFailed, match="claim of all projects, which jobs only read"):
        mounted(run, sources, mount, library=shared)
    with pytest.raises(AttemptFailed, match="it can't be made"):
        mounted(run, sources, {**mount, "create": True}, library=shared)

    read = mounted(run, sources, {**mount, "read_only": True}, library=shared).placements
    writable = library_of(tmp_path, pvc_shared=("all",), pvc_shared_writable=("all",))
    written = mounted(run, sources, mount, library=writable).placements

    assert [each.source for each in (*read, *written)] == [claim, claim]
    assert [each.writable for each in (*read, *written)] == [False, True]


def test_claims_of_a_project_with_the_name_of_a_shared_claim_are_not_used(run, sources, tmp_path):
    claim_at(tmp_path / "claims" / "team" / "scratch")
    library = library_of(tmp_path, project="team", pvc_shared=("team",))

    with pytest.raises(AttemptFailed, match="the project team has the name of a claim of all projects"):
        mounted(run, sources, {"path": "/x", "type": "claim", "claim": "scratch"}, library=library)


@pytest.mark.parametrize("part", ["missing", "out", "out/secret", "other"])
def test_part_that_is_not_in_the_claim_fails_the_job(run, sources, tmp_path, part):
    claim, other = claim_at(tmp_path / "claims" / "default" / "scratch"), claim_at(tmp_path / "claims" / "b" / "theirs")
    (claim / "out").symlink_to(tmp_path)
    (claim / "other").symlink_to(other)

    with pytest.raises(AttemptFailed, match=r"mounts\.0\.(sub_path|claim): .*(does not exist|leaves)") as caught:
        mounted(run, sources, {"path": "/x", "type": "claim", "claim": "scratch", "sub_path": part})

    assert caught.value.error_type == "INVALID_CONFIG"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives directories away")
def test_claim_that_the_worker_does_not_own_is_only_read(run, sources, tmp_path):
    claim, mount = claim_at(tmp_path / "claims" / "default" / "theirs"), {"type": "claim", "claim": "theirs"}
    os.chown(claim, 4321, 4321)
    with pytest.raises(AttemptFailed, match="theirs belongs to another user than the node's worker"):
        mounted(run, sources, {"path": "/x", **mount})

    assert mounted(run, sources, {"path": "/x", **mount, "read_only": True}).placements
    claim.chmod(0o777)
    assert mounted(run, sources, {"path": "/x", **mount}).placements
