"""Volume claims in a sandbox: what a job leaves there, and what one that writes there can't do to the next."""

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from app.domain.spec.locations.paths import ReadingRules
from app.domain.spec.model import JobDocument
from app.host.own_users import lack_of_own_users
from app.storage.beneath import located, resolved
from trainyard.protocol.run_spec import RunSpec
from workers.attempt_failed import AttemptFailed
from workers.prepare.inputs.input_library import JobInputs, Library, LocalData, LocalModel
from workers.prepare.job_mounts import with_mounts
from workers.run_dir.layout import RunDirectory
from workers.sandbox import placements
from workers.sandbox.landlock_rules import file_rules
from workers.sandbox.mounts import mounts
from workers.sandbox.own_user import OwnUser, take_user
from workers.sandbox.placements import PlacementConflict
from workers.sandbox.sandbox import Bubblewrap
from workers.sandbox.spec import FilesystemView, PlacedPath, SandboxSpec
from workers.sandbox.staging import PartLost

FIRST = 2_400_000 + os.getpid() % 100_000 * 8  # other tests at the same time have other users
UIDS = range(FIRST, FIRST + 2)
SECRET = "of the machine"
TARGET = Path("/data")


class Said(NamedTuple):
    code: int
    text: str


class Node:
    """A claim with a part, a secret beside it, and sandboxes that mount of it."""

    def __init__(self, folder: Path, user: OwnUser | None) -> None:
        self.user, self.claim, self.outside = user, folder / "claims" / "team" / "scratch", folder / "outside"
        self.part = self.claim / "part"
        for directory in (self.part, self.outside, folder / "run"):
            directory.mkdir(parents=True)
        (self.part / "name").write_text("of the claim")
        (self.outside / "name").write_text(SECRET)
        self.view = FilesystemView(run_dir=folder / "run", data_dir=folder / "data", claims=(self.claim,))

    def mounting(self, source: Path, *, writable: bool = False, target: Path = TARGET) -> FilesystemView:
        placed = PlacedPath(target=target, source=source, writable=writable)
        return replace(self.view, placements=(*self.view.placements, placed))

    def run(self, view: FilesystemView, script: str, *, own_network: bool = True) -> Said:
        """What a shell in a sandbox with that view says, and its exit code. Raises OSError."""
        spec = SandboxSpec(view=view, user=self.user, own_network=own_network)
        with Bubblewrap().enclosed(["sh", "-c", script], spec) as enclosed:
            done = subprocess.run(
                enclosed.command, pass_fds=enclosed.files, capture_output=True, text=True, check=False, timeout=30
            )
        return Said(done.returncode, done.stdout + done.stderr)

    def input_mounted(self, kind: str) -> FilesystemView:
        """A view with the part, which was found as an input of that kind, at the path. Raises AttemptFailed."""
        model = LocalModel(path=self.part, visible=self.part)
        data = LocalData(location="pvc://scratch/part", files=(), path=self.part, visible=(self.part,))
        sources = JobInputs(model=model, tokenizer=None, data=(data,), script=None, code=self.part)
        library = Library(
            rules=ReadingRules(roots=()),
            cache_dir=self.view.data_dir / "cache",
            project="team",
            project_of_job=lambda _: None,
            claims={self.claim},
        )
        mount = {"path": str(TARGET), "type": kind}
        document = JobDocument.from_json({"resource_config": {"mounts": [mount]}})
        run = RunDirectory(self.view.run_dir)
        spec = RunSpec(run_dir=run.path, framework="CUSTOM", training_type="SFT")
        found = with_mounts(spec, document, sources, run, Bubblewrap(), library)
        return replace(self.view, readable=(self.part,), placements=found.placements, claims=found.claims)


@pytest.fixture(params=["worker", "own"])
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Node]:
    """Jobs have the worker's user, or one of their own."""
    if request.param == "worker":
        yield Node(tmp_path, None)
        return
    if lack := lack_of_own_users(f"{UIDS[0]}-{UIDS[-1]}", Path("/tmp")):
        pytest.skip(f"here no attempt has a user of its own: {lack}")
    user = take_user(UIDS, locks=tmp_path / "locks")
    yield Node(tmp_path, user)
    user.release()


def test_what_a_job_writes_belongs_to_the_worker_and_the_next_job_reads_and_changes_it(node):
    first = node.run(node.mounting(node.claim, writable=True), "umask 077; echo 1 > /data/new; mkdir /data/dir")
    found = (node.claim / "new").stat()
    second = node.run(node.mounting(node.claim, writable=True), "cat /data/new; echo 2 > /data/new; rmdir /data/dir")

    assert (first.code, second) == (0, (0, "1\n"))
    assert (found.st_uid, found.st_mode & 0o777) == (os.geteuid(), 0o600)
    assert sorted(path.name for path in node.claim.iterdir()) == ["new", "part"]


def test_part_is_all_that_lies_at_its_path(node):
    said = node.run(node.mounting(node.part, writable=True), "ls /data /data/..; echo x > /data/../x || echo > /data/y")

    assert "name" in said.text
    assert "outside" not in said.text
    assert [path.name for path in node.claim.iterdir()] == ["part"]
    assert (node.part / "y").exists()


def test_read_only_claim_cannot_be_written(node):
    for source in (node.claim, node.part):
        assert "Read-only file system" in node.run(node.mounting(source), "echo x > /data/x").text


def test_link_in_place_of_a_part_is_not_followed_out_of_the_claim(node):
    node.part.rename(node.claim / "moved")
    node.part.symlink_to(node.outside)

    with pytest.raises(PartLost, match="part in the volume claim scratch can't be mounted: part is a link that leads"):
        node.run(node.mounting(node.part), "cat /data/name")
    with pytest.raises(PartLost, match="part/name in the volume claim scratch can't be mounted: name is a link"):
        node.run(node.mounting(node.part / "name"), "cat /data")


def test_part_that_is_gone_is_named(node):
    why = "No such file or directory; retry, or name another place"
    with pytest.raises(PartLost, match=f"gone in the volume claim scratch can't be mounted: {why}"):
        node.run(node.mounting(node.claim / "gone"), "true")


def test_mount_point_in_a_part_shows_nothing_of_what_a_link_leads_to(node):
    inside = node.mounting(node.part)
    view = replace(inside, placements=(*inside.placements, PlacedPath(target=TARGET / "in", size_mb=1)))
    assert [path.name for path in sources_below(view)] == ["name"]
    (node.outside / "other").touch()
    node.part.rename(node.claim / "moved")
    node.part.symlink_to(node.outside)

    with pytest.raises(PlacementConflict):
        mounts(view)


def test_part_that_becomes_a_file_while_its_mounts_are_made_is_named(node, monkeypatch):
    inside = node.mounting(node.part)
    view = replace(inside, placements=(*inside.placements, PlacedPath(target=TARGET / "in", size_mb=1)))

    @contextmanager
    def exchanged(path: Path, directory: Path) -> Iterator[int]:
        node.part.rename(node.claim / "moved")
        node.part.write_text("a file now")
        with located(path, directory) as descriptor:
            yield descriptor

    monkeypatch.setattr(placements, "located", exchanged)
    why = "Not a directory; retry, or name another place"
    with pytest.raises(PlacementConflict, match=f"/data can't be read in the volume claim scratch: {why}"):
        mounts(view)


@pytest.mark.long
def test_job_that_exchanges_a_part_never_chooses_what_is_listed_of_it(node):
    (node.outside / "other").touch()
    inside = node.mounting(node.part)
    view = replace(inside, placements=(*inside.placements, PlacedPath(target=TARGET / "in", size_mb=1)))
    seen: set[str] = set()

    with exchanging(node.part, node.outside):
        for _ in range(25):
            with suppress(PlacementConflict, FileNotFoundError):
                seen |= {path.name for path in sources_below(view)}

    assert seen <= {"name"}


def sources_below(view: FilesystemView) -> list[Path]:
    """What is mounted below the path."""
    return [mount.source for mount in mounts(view) if TARGET in mount.target.parents and mount.source != Path()]


def test_link_to_another_part_of_the_claim_shows_that(node):
    (node.claim / "latest").symlink_to("part")

    assert node.run(node.mounting(node.claim / "latest"), "cat /data/name") == (0, "of the claim")


def test_code_in_a_claim_is_not_exchanged_for_a_directory_of_the_machine(node):
    view = replace(node.view, code=node.part)
    assert node.run(view, f"cat {view.code_dir}/name") == (0, "of the claim")
    node.part.rename(node.claim / "moved")
    node.part.symlink_to(node.outside)

    assert SECRET not in said_or_refused(node, view, f"cat {view.code_dir}/name")


def test_rules_of_files_name_no_part_that_could_be_exchanged(node):
    allowed = [path for path, _ in file_rules(replace(node.view, code=node.part))]

    assert node.claim in allowed
    assert node.part not in allowed


@pytest.mark.long
def test_job_that_exchanges_directory_and_link_all_the_time_never_chooses_what_is_mounted(node):
    seen = []

    with exchanging(node.part, node.outside):
        for _ in range(25):
            seen.append(said_or_refused(node, node.mounting(node.part), "cat /data/name"))  # noqa: PERF401

    assert not [said for said in seen if SECRET in said]


def test_mount_point_in_a_claim_is_beside_its_entries_and_never_behind_a_link(node):
    inside = node.mounting(node.claim)
    inner = PlacedPath(target=TARGET / "part", size_mb=1)

    view = replace(inside, placements=(*inside.placements, inner))
    found = [(mount.target, mount.source) for mount in mounts(view) if mount.target.is_relative_to(TARGET)]

    assert (TARGET, node.claim) not in found
    assert node.run(view, "echo x > /data/part/x; ls /data /data/part") == (0, "/data:\npart\n\n/data/part:\nx\n")
    assert [path.name for path in node.part.iterdir()] == ["name"]


def test_nothing_is_mounted_in_a_claim_that_the_job_may_write_to(node):
    inside = node.mounting(node.claim, writable=True)
    view = replace(inside, placements=(*inside.placements, PlacedPath(target=TARGET / "part", size_mb=1)))

    with pytest.raises(PlacementConflict, match="/data/part lies in /data, a claim that the job may write to"):
        mounts(view)


MODES = """
import errno, os, stat
os.chdir("/data")
open("tool", "w").close()
def said(call, *arguments, **named):
    try:
        call(*arguments, **named)
        return "done"
    except OSError as error:
        return errno.errorcode[error.errno]
print(said(os.chmod, "tool", 0o4755), said(os.chmod, "tool", 0o2755), said(os.chmod, "tool", 0o755),
      said(os.open, "made", os.O_CREAT | os.O_WRONLY, 0o4755), said(os.open, "made", os.O_CREAT | os.O_WRONLY, 0o755),
      said(os.mkdir, "directory", 0o2755), said(os.mknod, "null", stat.S_IFCHR | 0o666, os.makedev(1, 3)),
      said(os.mkfifo, "pipe"), said(os.link, os.environ["RUN"] + "/own", "link"), said(os.link, "tool", "beside"))
print([name for name in sorted(os.listdir()) if os.lstat(name).st_mode & 0o6000])
"""


def test_job_leaves_no_program_of_the_worker_no_device_and_no_file_of_elsewhere(node):
    (node.view.run_dir / "own").touch()
    script = f"RUN={node.view.run_dir} python3 -c '{MODES}'"

    said = node.run(node.mounting(node.claim, writable=True), script).text.splitlines()

    assert said == ["EPERM EPERM done ENOSYS done done EPERM done EXDEV done", "[]"]


SET_USER_ID = ": > tool; chmod 4755 tool && echo done"


def test_job_to_which_others_may_pass_descriptors_sets_no_user_id(node):
    alone = replace(node.view, claims=())

    for view, own_network in ((node.view, True), (node.mounting(node.claim), True), (alone, False)):
        said = node.run(view, f"cd {node.view.run_dir}; {SET_USER_ID}", own_network=own_network)
        assert "Operation not permitted" in said.text


def test_filter_of_other_jobs_is_the_usual_one(node):
    said = node.run(replace(node.view, claims=()), f"cd {node.view.run_dir}; {SET_USER_ID}")

    assert said == (0, "done\n")


INPUTS = ["data", "code", "model"]


@pytest.mark.parametrize("kind", INPUTS)
def test_link_in_place_of_an_input_that_is_mounted_is_not_followed_out_of_the_claim(node, kind):
    node.part.rename(node.claim / "moved")
    node.part.symlink_to(node.outside)

    with pytest.raises(AttemptFailed, match=f"mounts.0: the {kind} of the job is no longer where"):
        node.input_mounted(kind)


@pytest.mark.long
@pytest.mark.parametrize("kind", INPUTS)
def test_job_that_exchanges_an_input_never_chooses_what_another_one_mounts_of_it(node, kind):
    seen = []

    with exchanging(node.part, node.outside):
        for _ in range(25):
            with suppress(AttemptFailed):
                seen.append(said_or_refused(node, node.input_mounted(kind), "cat /data/name"))

    assert not [said for said in seen if SECRET in said]


def test_path_is_resolved_while_another_job_exchanges_a_part_of_it(node):
    """Python reads a link after it has looked at it: one of twenty calls fails when a job does it all the time."""
    with exchanging(node.part, node.outside):
        found = {resolved(node.part) for _ in range(1000)}

    assert found <= {str(node.part), str(node.outside)}


def said_or_refused(node: Node, view: FilesystemView, script: str) -> str:
    try:
        return node.run(view, script).text
    except (OSError, PlacementConflict) as error:
        return str(error)


@contextmanager
def exchanging(part: Path, outside: Path) -> Iterator[None]:
    """Another job, which puts a link in place of the directory and the directory back, all the time."""
    aside, link, ended = part.with_name("aside"), part.with_name("link"), threading.Event()

    def exchange() -> None:
        while not ended.is_set():
            part.rename(aside)
            link.symlink_to(outside)
            link.rename(part)
            part.unlink()
            aside.rename(part)

    thread = threading.Thread(target=exchange)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
