"""Paths of the job's choice in the sandbox: rules of their place, and what a script finds there."""

import dataclasses
import json
from pathlib import Path

import pytest

from tests.unit.workers.rank.launching import Run, make_plan, write_script
from workers.sandbox.mounts import mounts
from workers.sandbox.placements import MOST_ENTRIES, MountKind, PlacementConflict
from workers.sandbox.sandbox import Bubblewrap
from workers.sandbox.spec import FilesystemView, PlacedPath

SCRIPT = """
import json, os
def read(path):
    try:
        return sorted(os.listdir(path)) if os.path.isdir(path) else open(path).read()
    except OSError as error:
        return type(error).__name__
def wrote(path):
    try:
        with open(path, "w") as file:
            file.write("new")
        return True
    except OSError as error:
        return os.strerror(error.errno)
print(json.dumps({"read": {path: read(path) for path in READ}, "wrote": {path: wrote(path) for path in WRITE}}))
"""


@pytest.fixture
def inputs(tmp_path):
    """A directory of data outside of the data directory."""
    directory = tmp_path / "inputs"
    (directory / "images").mkdir(parents=True)
    (directory / "images" / "1.png").write_text("png")
    (directory / "labels.csv").write_text("labels")
    (directory / "link").symlink_to("labels.csv")
    return directory


def run(tmp_path, placements, read=(), write=(), **view):
    texts = [f"READ = {[*map(str, read)]!r}", f"WRITE = {[*map(str, write)]!r}", SCRIPT]
    plan = make_plan(tmp_path, write_script(tmp_path / "code", "\n".join(texts)), Bubblewrap())
    made = dataclasses.replace(plan.view, placements=tuple(placements), **view)
    launched = Run(dataclasses.replace(plan, confinement=dataclasses.replace(plan.confinement, view=made)))
    try:
        assert launched.finish() == 0, launched.log()
        return json.loads(launched.log())
    finally:
        launched.close()


def view_of(tmp_path, placements, **given):
    (tmp_path / "run").mkdir(exist_ok=True)
    return FilesystemView(run_dir=tmp_path / "run", data_dir=tmp_path / "data", placements=tuple(placements), **given)


def test_script_finds_inputs_outputs_and_empty_directories_where_it_looks(tmp_path, inputs):
    out, scratch = tmp_path / "out", tmp_path / "scratch"
    out.mkdir()
    scratch.mkdir()
    placements = [
        PlacedPath(target=Path("/home/user/data"), source=inputs),
        PlacedPath(target=Path("/labels.csv"), source=inputs / "labels.csv"),
        PlacedPath(target=Path("/home/user/out"), source=out, writable=True),
        PlacedPath(target=Path("/scratch/deep"), source=scratch, writable=True),
        PlacedPath(target=Path("/memory"), size_mb=1),
    ]

    seen = run(
        tmp_path,
        placements,
        read=["/home/user", "/home/user/data", "/home/user/data/images", "/labels.csv", "/home/user/data/link"],
        write=["/home/user/data/new", "/home/user/out/model", "/scratch/deep/x", "/memory/x", "/home/x", "/scratch/x"],
    )

    assert seen["read"] == {
        "/home/user": ["data", "out"],
        "/home/user/data": ["images", "labels.csv", "link"],
        "/home/user/data/images": ["1.png"],
        "/labels.csv": "labels",
        "/home/user/data/link": "labels",
    }
    assert seen["wrote"] == {
        "/home/user/data/new": "Read-only file system",
        "/home/user/out/model": True,
        "/scratch/deep/x": True,
        "/memory/x": True,
        "/home/x": "Read-only file system",
        "/scratch/x": "Read-only file system",
    }
    assert [(out / "model").read_text(), (scratch / "x").read_text()] == ["new", "new"]


def test_files_of_a_document_are_readable_and_lie_in_memory(tmp_path):
    files = (("token", "opensesame"), ("config.yaml", "a: 1\n"))

    seen = run(
        tmp_path,
        [PlacedPath(target=Path("/home/user/secrets"), size_mb=1, files=files)],
        read=["/home/user/secrets", "/home/user/secrets/token", "/home/user/secrets/config.yaml"],
        write=["/home/user/secrets/token", "/home/user/secrets/new"],
    )

    assert seen["read"] == {
        "/home/user/secrets": ["config.yaml", "token"],
        "/home/user/secrets/token": "opensesame",
        "/home/user/secrets/config.yaml": "a: 1\n",
    }
    assert set(seen["wrote"].values()) == {"Read-only file system"}
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and b"opensesame" in path.read_bytes()]


def test_file_of_a_document_lies_beside_those_of_an_input(tmp_path, inputs):
    placements = [
        PlacedPath(target=Path("/app"), source=inputs),
        PlacedPath(target=Path("/app/own.yaml"), text="a: 1\n"),
        PlacedPath(target=Path("/app/images/own.yaml"), text="a: 2\n"),
    ]

    seen = run(tmp_path, placements, read=["/app", "/app/own.yaml", "/app/labels.csv", "/app/images/own.yaml"])

    assert seen["read"] == {
        "/app": ["images", "labels.csv", "link", "own.yaml"],
        "/app/own.yaml": "a: 1\n",
        "/app/labels.csv": "labels",
        "/app/images/own.yaml": "a: 2\n",
    }
    with pytest.raises(PlacementConflict, match=r"/app/labels\.csv would hide a file"):
        mounts(view_of(tmp_path, [placements[0], PlacedPath(target=Path("/app/labels.csv"), text="")]))


@pytest.mark.parametrize("directory", ["/memory", "/dev/shm"])
def test_directory_in_memory_ends_at_its_size(tmp_path, directory):
    script = write_script(
        tmp_path / "code",
        f"import errno\ntry:\n    open('{directory}/x', 'wb').write(b'1' * (3 << 20))\n"
        "except OSError as error:\n    print(errno.errorcode[error.errno])\n",
    )
    plan = make_plan(tmp_path, script, Bubblewrap())
    view = dataclasses.replace(plan.view, placements=(PlacedPath(target=Path("/memory"), size_mb=2),))
    confinement = dataclasses.replace(plan.confinement, view=view, shm_mb=2)
    launched = Run(dataclasses.replace(plan, confinement=confinement))
    try:
        assert launched.finish() == 0, launched.log()
        assert launched.log() == "ENOSPC\n"
    finally:
        launched.close()


def test_mount_point_is_made_in_an_input_that_has_no_such_directory(tmp_path, inputs):
    scratch = tmp_path / "scratch"
    scratch.mkdir()

    seen = run(
        tmp_path,
        [PlacedPath(target=inputs / "images" / "cache" / "1", source=scratch, writable=True)],
        read=[inputs, inputs / "images", inputs / "images" / "1.png", inputs / "link"],
        write=[inputs / "images" / "cache" / "1" / "x", inputs / "images" / "y", inputs / "y"],
        readable=(inputs,),
    )

    assert seen["read"] == {
        str(inputs): ["images", "labels.csv", "link"],
        str(inputs / "images"): ["1.png", "cache"],
        str(inputs / "images" / "1.png"): "png",
        str(inputs / "link"): "labels",
    }
    assert [*seen["wrote"].values()] == [True, "Read-only file system", "Read-only file system"]
    assert not (inputs / "images" / "cache").exists()
    assert (scratch / "x").exists()


def test_mount_over_a_directory_of_an_input_replaces_it(tmp_path, inputs):
    other = tmp_path / "other"
    other.mkdir()

    seen = run(
        tmp_path,
        [PlacedPath(target=inputs / "images", source=other)],
        read=[inputs / "images", inputs / "labels.csv"],
        readable=(inputs,),
    )

    assert [*seen["read"].values()] == [[], "labels"]


def test_input_can_be_mounted_at_its_own_path_or_around_a_part_that_is_shown_there(tmp_path, inputs):
    placement = PlacedPath(target=inputs, source=inputs)

    found = mounts(view_of(tmp_path, [placement], readable=(inputs, inputs / "images")))

    assert [mount.kind for mount in found if mount.target.is_relative_to(inputs)] == [MountKind.READ_ONLY]


def test_what_no_job_may_see_stays_hidden_where_a_directory_around_it_is_mounted(tmp_path, inputs):
    secret = inputs / "jobs"
    secret.mkdir()
    (secret / "key").write_text("key")
    place = Path("/volume")

    seen = run(
        tmp_path,
        [PlacedPath(target=place, source=inputs)],
        read=["/volume/labels.csv", "/volume/jobs"],
        hidden=(secret,),
    )

    assert seen["read"] == {"/volume/labels.csv": "labels", "/volume/jobs": []}


def test_path_that_hides_what_the_job_needs_is_refused(tmp_path, inputs):
    with pytest.raises(PlacementConflict, match=f"{inputs} would hide {inputs}/labels.csv, which the job needs"):
        mounts(view_of(tmp_path, [PlacedPath(target=inputs)], readable=(inputs / "labels.csv",)))


@pytest.mark.parametrize("of_run_dir", ["", "work", "../"])
def test_run_directory_is_never_covered(tmp_path, of_run_dir):
    target = (tmp_path / "run" / of_run_dir).resolve()

    with pytest.raises(PlacementConflict, match=f"{target} is in the way of the run directory"):
        mounts(view_of(tmp_path, [PlacedPath(target=target)]))


@pytest.mark.parametrize(
    ("name", "why"), [("labels.csv/x", "is a file"), ("link", "would hide"), ("link/x", "is a file")]
)
def test_mount_point_in_place_of_a_file_is_refused(tmp_path, inputs, name, why):
    with pytest.raises(PlacementConflict, match=why):
        mounts(view_of(tmp_path, [PlacedPath(target=inputs / name)], readable=(inputs,)))


def test_mount_point_in_a_directory_of_many_files_is_refused(tmp_path, inputs):
    for number in range(MOST_ENTRIES):
        (inputs / str(number)).touch()

    with pytest.raises(PlacementConflict, match=f"has no such directory, and {MOST_ENTRIES + 3} entries"):
        mounts(view_of(tmp_path, [PlacedPath(target=inputs / "new")], readable=(inputs,)))


def test_links_that_an_earlier_attempt_left_in_its_output_are_not_followed(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "escape").symlink_to("/oldroot")
    place = Path("/out")
    placements = [PlacedPath(target=place, source=out, writable=True), PlacedPath(target=place / "escape" / "x")]

    with pytest.raises(PlacementConflict, match="/out/escape/x would replace a file in /out"):
        mounts(view_of(tmp_path, placements))


def test_script_of_a_document_can_be_started_where_its_mode_says_so(tmp_path):
    script = write_script(
        tmp_path / "code",
        "import os, subprocess\n"
        "print(subprocess.run(['/app/go'], capture_output=True, text=True, check=True).stdout.strip(), flush=True)\n"
        "print(oct(os.stat('/app/go').st_mode & 0o7777), os.access('/app/go', os.W_OK))\n",
    )
    plan = make_plan(tmp_path, script, Bubblewrap())
    placed = PlacedPath(target=Path("/app"), size_mb=1, files=(("go", "#!/bin/sh\necho went\n"),), mode="0755")
    view = dataclasses.replace(plan.view, placements=(placed,))
    launched = Run(dataclasses.replace(plan, confinement=dataclasses.replace(plan.confinement, view=view)))
    try:
        assert launched.finish() == 0, launched.log()
        assert launched.log() == "went\n0o755 False\n"
    finally:
        launched.close()
