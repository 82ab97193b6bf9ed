"""What holds for every kind of place: nothing of others is overwritten, and doing it again does no harm."""

import hashlib
import json
import os
import subprocess
import sys

import pytest

from app.storage.object_keys import TEMPORARY
from tests.publishing.conftest import FILES, JOB, make_order, put_file, tree
from workers.publishing.copying import MARKER, copy
from workers.publishing.failures import NotPublished
from workers.publishing.local import LocalTarget
from workers.publishing.objects import ObjectTarget
from workers.publishing.orders import order_of
from workers.publishing.web import WebTarget

OTHER = "job-01980000-0000-7000-8000-000000000002"


def nothing(count: int) -> None:
    pass


def test_the_model_arrives_and_says_whose_it_is(spot, order):
    moved: list[int] = []

    assert copy(spot.place, order, moved.append) == ""

    assert spot.model() == FILES
    marker = spot.marker()
    assert (marker["job_id"], marker["complete"]) == (JOB, True)
    digests = {file["path"]: file["sha256"] for file in marker["files"]}
    assert digests == {path: hashlib.sha256(data).hexdigest() for path, data in FILES.items()}
    assert sum(moved) >= sum(map(len, FILES.values()))


def test_files_of_others_are_left_alone(spot, order):
    spot.put("README.md", b"mine")

    assert copy(spot.place, order, nothing) == JOB

    assert spot.files()["README.md"] == b"mine"
    assert spot.model(JOB) == FILES


def test_a_directory_of_another_job_is_that_jobs(spot, order, tmp_path):
    copy(spot.make(OTHER), make_order(tmp_path / "other", {"config.json": b"theirs"}, job_id=OTHER), nothing)

    assert copy(spot.place, order, nothing) == JOB

    assert spot.files()["config.json"] == b"theirs"
    assert spot.marker()["job_id"] == OTHER
    assert spot.model(JOB) == FILES


def test_when_nothing_is_free_nothing_is_written(spot, order):
    spot.put("README.md", b"mine")
    spot.put(f"{JOB}/config.json", b"mine, too")
    before = dict(spot.files())

    with pytest.raises(NotPublished, match="name an empty directory") as refused:
        copy(spot.place, order, nothing)

    assert not refused.value.transient
    assert spot.files() == before


def test_doing_it_again_changes_nothing(spot, order):
    copy(spot.place, order, nothing)
    first = dict(spot.files())

    assert copy(spot.place, order, nothing) == ""

    assert spot.files() == first


def test_a_later_attempt_of_the_job_replaces_its_own(spot, order, tmp_path):
    copy(spot.place, order, nothing)
    later = make_order(tmp_path / "later", {"model.safetensors": b"better", "config.json": b"{}"})

    assert copy(spot.place, later, nothing) == ""

    assert spot.model() == {"model.safetensors": b"better", "config.json": b"{}"}
    assert spot.marker()["complete"]


def test_what_was_cut_off_is_gone_on_with(spot, order):
    class Cut(Exception):
        pass

    put = {"count": 0}
    place = spot.place

    def dying(folder, file, source, arrived):
        put["count"] += 1
        if put["count"] == 3:
            raise Cut
        type(place).put(place, folder, file, source, arrived)

    place.put = dying
    with pytest.raises(Cut):
        copy(place, order, nothing)
    assert not spot.marker()["complete"]
    assert "README.md" not in spot.model()

    put["count"] = 3
    assert copy(place, order, nothing) == ""

    assert spot.model() == FILES
    assert put["count"] == 3 + len(FILES) - 2
    assert spot.marker()["complete"]


def test_weights_go_first_and_what_readers_look_for_last(order):
    assert [file.path for file in order.in_order()] == [
        "model.safetensors",
        "empty.txt",
        "sub/tokenizer.json",
        "config.json",
        "README.md",
    ]


def test_an_order_survives_the_pipe(order):
    assert order_of(json.loads(json.dumps(order.document()))) == order


def test_a_model_that_changed_since_it_was_hashed_is_not_published(spot, order):
    (order.source / "config.json").write_bytes(b"something else")

    with pytest.raises(NotPublished, match=r"config\.json has changed since it was stored"):
        copy(spot.place, order, nothing)
    (order.source / "config.json").write_bytes(FILES["config.json"].upper())
    with pytest.raises(NotPublished, match=r"config\.json does not match what was sent"):
        copy(spot.place, order, nothing)

    assert not spot.marker()["complete"]


def test_a_marker_that_names_paths_outside_deletes_nothing_there(tmp_path, order):
    victim = tmp_path / "victim"
    victim.write_text("dear")
    target = tmp_path / "out"
    paths = ["../victim", str(victim), "a/../../victim", "", MARKER]
    put_file(target, MARKER, json.dumps({"job_id": JOB, "files": [{"path": path} for path in paths]}).encode())

    copy(LocalTarget(str(target), JOB), order, nothing)

    assert victim.read_text() == "dear"
    assert tree(target).keys() == {*FILES, MARKER}


def test_an_output_file_may_not_pose_as_the_marker(tmp_path):
    order = make_order(tmp_path / "model", {MARKER: b"{}"})

    with pytest.raises(NotPublished, match="rename it"):
        copy(LocalTarget(str(tmp_path / "out"), JOB), order, nothing)


# ---- a directory of this machine


@pytest.mark.parametrize("where", ["a", "a/b", "a/b/out"])
def test_a_link_that_appears_on_the_way_leads_nowhere(tmp_path, order, where):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    link = tmp_path / where
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(elsewhere)

    with pytest.raises(NotPublished):
        copy(LocalTarget(str(tmp_path / "a/b/out"), JOB), order, nothing)

    assert list(elsewhere.iterdir()) == []


def test_a_link_in_place_of_a_folder_of_ours_leads_nowhere(tmp_path, order):
    elsewhere, target = tmp_path / "elsewhere", tmp_path / "out"
    elsewhere.mkdir()
    copy(LocalTarget(str(target), JOB), order, nothing)
    (target / "sub" / "tokenizer.json").unlink()
    (target / "sub").rmdir()
    (target / "sub").symlink_to(elsewhere)

    with pytest.raises(NotPublished, match="became a link or a file"):
        copy(LocalTarget(str(target), JOB), order, nothing)

    assert list(elsewhere.iterdir()) == []


def test_a_link_in_place_of_a_file_is_replaced_and_not_written_through(tmp_path, order):
    victim = tmp_path / "victim"
    victim.write_text("dear")
    target = tmp_path / "out"
    copy(LocalTarget(str(target), JOB), order, nothing)
    (target / "config.json").unlink()
    (target / "config.json").symlink_to(victim)

    copy(LocalTarget(str(target), JOB), order, nothing)

    assert victim.read_text() == "dear"
    assert tree(target).keys() == {*FILES, MARKER}
    assert not (target / "config.json").is_symlink()


def test_a_file_where_the_directory_should_be_is_refused(tmp_path, order):
    (tmp_path / "out").write_text("a file")

    with pytest.raises(NotPublished, match="name a directory"):
        copy(LocalTarget(str(tmp_path / "out"), JOB), order, nothing)


def test_an_existing_empty_directory_keeps_its_rights(tmp_path, order):
    target = tmp_path / "out"
    target.mkdir(mode=0o750)

    copy(LocalTarget(str(target), JOB), order, nothing)

    assert target.stat().st_mode & 0o777 == 0o750
    assert (target / "config.json").stat().st_mode & 0o777 == 0o644


PERMISSIONS = """
import os, sys
from workers.publishing.failures import NotPublished
from workers.publishing.local import LocalTarget
os.setgid(65534); os.setuid(65534)
for path in sys.argv[1:]:
    try:
        LocalTarget(path, "job-x").check()
        print("may")
    except NotPublished as error:
        print(error.message.removeprefix(path), error.transient)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root may switch to another user: run `make test` as root")
def test_what_may_not_be_written_is_found_out_before(tmp_path):
    closed, free = tmp_path / "closed", tmp_path / "free"
    for directory, mode in ((closed, 0o755), (free, 0o777)):
        directory.mkdir()
        directory.chmod(mode)
    for parent in tmp_path.parents:
        if parent.stat().st_mode & 0o005 != 0o005 and parent.is_relative_to("/tmp"):
            parent.chmod(parent.stat().st_mode | 0o005)
    tmp_path.chmod(0o755)
    paths = [str(each) for each in (closed, closed / "new", free, free / "deep/er")]

    said = subprocess.run(
        [sys.executable, "-c", PERMISSIONS, *paths], capture_output=True, text=True, check=True
    ).stdout.splitlines()

    refusal = ": Permission denied; let the user that Trainyard runs as write there, or name another directory False"
    assert said == [refusal, refusal, "may", "may"]
    assert list(free.iterdir()) == list(closed.iterdir()) == []


def test_leftovers_of_a_killed_try_are_cleared(tmp_path, order):
    target = tmp_path / "out"
    target.mkdir()
    (target / f".trainyard-tmp-{JOB}").write_bytes(b"half of it")

    assert copy(LocalTarget(str(target), JOB), order, nothing) == ""

    assert tree(target).keys() == {*FILES, MARKER}


# ---- a bucket


def test_check_that_another_node_makes_too_finds_a_place_that_can_be_written(tmp_path):
    (tmp_path / f"{TEMPORARY}job-x").touch()  # that node's, or of one that was killed

    LocalTarget(str(tmp_path), "job-x").check()

    assert list(tmp_path.iterdir()) == []


def test_check_of_a_bucket_leaves_nothing(bucket, s3):
    bucket.place.check()

    assert s3.files("") == {}


@pytest.mark.long
def test_a_bucket_that_does_not_exist_is_named(bucket_files, order):
    place = ObjectTarget(bucket_files, "no-such-bucket/x", JOB)

    for act in (place.check, lambda: copy(place, order, nothing)):
        with pytest.raises(NotPublished, match="there is no bucket no-such-bucket") as refused:
            act()
        assert not refused.value.transient


# ---- a drive


def test_an_upload_that_arrives_damaged_is_noticed(share, drive, order):
    share.spoiled.add("/shares/mine/out/config.json")

    with pytest.raises(NotPublished, match=r"config\.json does not match what was sent") as failed:
        copy(drive.place, order, nothing)

    assert failed.value.transient
    assert copy(drive.place, order, nothing) == ""
    assert drive.model() == FILES


def test_a_drive_that_stumbles_may_be_asked_again(share, drive, order):
    share.broken = [503]

    with pytest.raises(NotPublished, match="answers 503") as failed:
        copy(drive.place, order, nothing)

    assert failed.value.transient


def test_a_refused_token_is_reported_with_the_remedy(share):
    with pytest.raises(NotPublished, match="submit with a token that may write there") as failed:
        WebTarget(f"{share.url}/mine/out", {"Authorization": "Bearer stale"}).check()

    assert not failed.value.transient
