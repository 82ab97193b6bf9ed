"""Each attempt of a worker that is root has a host user of its own; the worker's files stay the worker's."""

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from app.host.own_users import lack_of_own_users, overlap_of, record_verdict, recorded_lack, uid_range
from app.host.processes import start_ticks
from config.settings import load_settings
from tests.unit.workers.rank.launching import Run, make_plan, write_script
from workers.sandbox.mounts import OURS
from workers.sandbox.own_user import NoFreeUser, OwnUser, take_user
from workers.sandbox.sandbox import Bubblewrap
from workers.sandbox.spec import Account, FilesystemView, PlacedPath, SandboxSpec

# As the agent of a job does it; the children live until the sandbox ends.
BOMB = f"""
import os, sys, time
sys.path.insert(0, {str(OURS)!r})
from workers.rank.resource_limits import PROCESSES, limit_resources
limit_resources({{PROCESSES: 60}})
for made in range(500):
    try:
        os.fork() or time.sleep(60)
    except BlockingIOError:
        sys.exit(print(made, flush=True) or sys.stdin.read())
"""
FIRST = 800_000 + os.getpid() % 100_000 * 8  # processes of other tests at the same time have other users
UIDS = range(FIRST, FIRST + 3)
pytestmark = pytest.mark.skipif(
    bool(lack := lack_of_own_users(f"{UIDS[0]}-{UIDS[-1]}", Path("/tmp"))),
    reason=f"here no attempt has a user of its own: {lack}",
)


@pytest.fixture
def locks(tmp_path: Path) -> Path:
    return tmp_path / "locks"


@pytest.fixture
def user(locks: Path) -> Iterator[OwnUser]:
    found = take_user(UIDS, locks=locks)
    yield found
    found.release()


@pytest.fixture
def view(tmp_path: Path) -> FilesystemView:
    private = tmp_path / "input"
    private.write_text("of the worker")
    private.chmod(0o600)
    run_dir = tmp_path / "data" / "run" / "jobs" / "job-1" / "1"
    run_dir.mkdir(parents=True, mode=0o700)
    return FilesystemView(run_dir=run_dir, data_dir=tmp_path / "data", readable=(private,))


@contextmanager
def started(command: str, view: FilesystemView, user: OwnUser, **given: object) -> Iterator[subprocess.Popen[str]]:
    spec = SandboxSpec(view=view, user=user, **given)  # type: ignore[arg-type]
    with (
        Bubblewrap().enclosed(["sh", "-c", command], spec) as enclosed,
        subprocess.Popen(
            enclosed.command, pass_fds=enclosed.files, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process,
    ):
        yield process


def output_of(command: str, view: FilesystemView, user: OwnUser, **given: object) -> list[str]:
    with started(command, view, user, **given) as process:
        said, _ = process.communicate(timeout=30)
    assert process.returncode == 0, said
    return said.splitlines()


def users_of(pid: int) -> list[str]:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(line.split()[1:] for line in status.splitlines() if line.startswith("Uid:"))


def test_private_input_is_readable_inside_and_unchanged_outside(view: FilesystemView, user: OwnUser) -> None:
    (private,) = view.readable
    before = private.stat()

    said = output_of(
        f"cat {private}; echo; stat -c '%u %a' {private}; touch {private} 2>/dev/null || echo no", view, user
    )

    assert said == ["of the worker", "1000 600", "no"]
    after = private.stat()
    assert (after.st_uid, after.st_mode, after.st_mtime_ns) == (0, before.st_mode, before.st_mtime_ns)


def test_what_is_written_is_the_workers(view: FilesystemView, user: OwnUser) -> None:
    output_of(f"mkdir {view.run_dir}/new && echo a > {view.run_dir}/new/file && echo b > /tmp/other", view, user)

    owners = {path.stat().st_uid for path in view.run_dir.rglob("*")}
    assert owners == {os.getuid()}
    assert (view.run_dir / "new" / "file").read_text() == "a\n"


def test_processes_have_the_user_on_the_machine_and_the_jobs_inside(view: FilesystemView, user: OwnUser) -> None:
    with started("id -u; id -g; id -G; read end || :", view, user, account=Account(uid=77, gid=88)) as process:
        assert process.stdout is not None
        inside = [process.stdout.readline().strip() for _ in range(3)]
        below = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        outside = [users_of(pid) for pid in (process.pid, *map(int, below))]

    assert inside == ["77", "88", "88"]
    assert len(outside) > 1
    assert {name for names in outside for name in names} == {str(user.uid)}


def test_fork_bomb_ends_at_its_own_limit_without_control_groups(
    view: FilesystemView, user: OwnUser, locks: Path
) -> None:
    script, other = write_script(view.run_dir / "bomb", BOMB), take_user(UIDS, locks=locks)
    with started(f"{sys.executable} {script}", view, user) as bomb:
        assert bomb.stdout is not None
        assert 0 < int(bomb.stdout.readline()) < 60
        assert output_of("sleep 0 & wait $! && echo forked", view, other) == ["forked"]
    other.release()


def test_rank_may_open_its_output_again_by_name(tmp_path: Path, user: OwnUser) -> None:
    script = write_script(tmp_path / "mine", "for name in ('stdout', 'stderr'): open(f'/dev/{name}', 'w').write(name)")
    plan = make_plan(tmp_path, script, Bubblewrap())
    run = Run(replace(plan, confinement=SandboxSpec(view=plan.view, user=user)))

    try:
        assert run.finish() == 0, run.log()
        assert run.log() == "stdoutstderr"
    finally:
        run.close()


def test_user_of_another_attempt_reaches_neither_files_nor_processes(
    view: FilesystemView, user: OwnUser, locks: Path
) -> None:
    other = take_user(UIDS, locks=locks)
    secret = view.run_dir / "secret"
    secret.write_text("of the first attempt")
    as_other = ["setpriv", "--reuid", str(other.uid), "--regid", str(other.uid), "--clear-groups", "--"]
    with started("echo up; read end || :", view, user) as process:
        assert process.stdout is not None
        process.stdout.readline()
        tried = {
            "read": subprocess.run([*as_other, "cat", secret], capture_output=True, check=False),
            "signal": subprocess.run([*as_other, "kill", "-9", str(process.pid)], capture_output=True, check=False),
            "look": subprocess.run(
                [*as_other, "cat", f"/proc/{process.pid}/environ"], capture_output=True, check=False
            ),
        }
        is_alive = process.poll() is None
    other.release()

    assert {name for name, done in tried.items() if done.returncode == 0} == set()
    assert is_alive
    assert user.uid != other.uid


def test_private_files_in_directories_of_programs_are_closed_but_inputs_there_are_open(
    view: FilesystemView, user: OwnUser, tmp_path: Path
) -> None:
    software = tmp_path / "software"
    (software / "model").mkdir(parents=True)
    for name in ("key", "model/weights"):
        (software / name).write_text("content")
        (software / name).chmod(0o600)
    seen = FilesystemView(
        run_dir=view.run_dir, data_dir=view.data_dir, readable=(software / "model",), software=(software,)
    )

    said = output_of(f"cat {software}/model/weights; echo; cat {software}/key 2>/dev/null || echo no", seen, user)

    assert said == ["content", "no"]


def test_input_in_a_directory_of_the_system_is_open(view: FilesystemView, user: OwnUser, beside_programs: Path) -> None:
    (beside_programs / "weights").write_text("content")
    (beside_programs / "weights").chmod(0o600)
    seen = FilesystemView(run_dir=view.run_dir, data_dir=view.data_dir, readable=(beside_programs,))

    assert output_of(f"cat {beside_programs}/weights", seen, user) == ["content"]


@pytest.fixture
def beside_programs() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/usr/local/share") as name:
        yield Path(name)


@pytest.mark.parametrize("shut", [".", "closed"], ids=["software directory", "directory in it"])
@pytest.mark.parametrize(
    "kind", ["input", "data directory", "hidden directory", "hidden file", "our code", "placement"]
)
def test_mount_points_in_directories_closed_to_the_user_are_reached(
    kind: str, shut: str, view: FilesystemView, user: OwnUser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    software = tmp_path / "software"
    inside = software / "closed" / "inside"
    inside.mkdir(parents=True)
    (inside / "file").write_text("content")
    (software / "closed" / "key").write_text("content")
    (software / shut).chmod(0o700)
    if kind == "our code":
        monkeypatch.syspath_prepend(str(inside))
    if kind == "data directory":
        view = replace(view, data_dir=inside, run_dir=inside / "run")
        view.run_dir.mkdir()
    hidden = {"hidden directory": (inside,), "hidden file": (inside / "file",)}.get(kind, ())
    placements = (PlacedPath(target=inside / "new", source=view.readable[0]),) if kind == "placement" else ()
    readable = (inside,) if kind == "input" else view.readable
    seen = replace(view, readable=readable, software=(software,), hidden=hidden, placements=placements)

    said = output_of(f"cat {inside}/* 2>/dev/null; echo; cat {software}/closed/key 2>/dev/null || echo no", seen, user)

    shown = {"input": "content", "our code": "content", "placement": "of the worker"}.get(kind, "")
    assert said == [shown, "no"]


@pytest.mark.parametrize("kind", ["input", "our code"])
def test_closed_directories_of_the_system_are_no_obstacle(
    kind: str, view: FilesystemView, user: OwnUser, beside_programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = beside_programs / "inside"
    inside.mkdir()
    (inside / "file").write_text("content")
    (inside / "file").chmod(0o600)
    beside_programs.chmod(0o700)
    if kind == "our code":
        monkeypatch.syspath_prepend(str(inside))
    seen = replace(view, readable=(inside,) if kind == "input" else view.readable)

    assert output_of(f"cat {inside}/file", seen, user) == ["content"]


def test_data_directory_in_a_directory_of_the_system_is_written_to(
    view: FilesystemView, user: OwnUser, beside_programs: Path
) -> None:
    run_dir = beside_programs / "run"
    run_dir.mkdir(mode=0o700)

    output_of(f"echo made > {run_dir}/file", replace(view, run_dir=run_dir, data_dir=beside_programs), user)

    assert (run_dir / "file").read_text() == "made\n"


def test_configuration_closed_to_the_user_is_left_out(
    view: FilesystemView, user: OwnUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory(dir="/etc") as name:  # 0700
        file = Path(name, "file")
        file.write_text("content")
        monkeypatch.setattr("workers.sandbox.mounts.CONFIGURATION", (file, Path("/etc/ld.so.cache")))

        assert output_of(f"cat {file} 2>/dev/null || echo no", view, user) == ["no"]


def test_no_two_have_the_same_user(locks: Path) -> None:
    users = [take_user(UIDS, locks=locks) for _ in UIDS]

    with pytest.raises(NoFreeUser, match="TRAINYARD_NODE_UIDS"):
        take_user(UIDS, locks=locks)
    users[1].release()
    again = take_user(UIDS, locks=locks)

    assert sorted(each.uid for each in users) == list(UIDS)
    assert again.uid == users[1].uid
    for each in (users[0], users[2], again):
        each.release()


def _take_and_die(locks: Path, writer: int) -> None:
    user = take_user(UIDS, locks=locks)
    with subprocess.Popen(["setpriv", "--reuid", str(user.uid), "sleep", "60"], start_new_session=True) as left:
        os.write(writer, str(left.pid).encode())
        os.kill(os.getpid(), signal.SIGKILL)


def test_user_of_a_killed_supervisor_is_taken_again_when_its_processes_have_ended(locks: Path) -> None:
    reader, writer = os.pipe()
    killed = multiprocessing.get_context("fork").Process(target=_take_and_die, args=(locks, writer))
    killed.start()
    left = int(os.read(reader, 20))
    killed.join()
    try:
        while users_of(left)[0] == "0":
            pass  # it is not that user yet
        beside = take_user(UIDS, locks=locks)
    finally:
        os.kill(left, signal.SIGKILL)
    beside.release()
    while start_ticks(left) is not None:
        pass
    again = take_user(UIDS, locks=locks)
    again.release()

    assert (beside.uid, again.uid) == (UIDS[1], UIDS[0])


def test_user_of_a_process_that_no_worker_started_is_not_taken(locks: Path) -> None:
    with subprocess.Popen(["setpriv", "--reuid", str(UIDS[0]), "sleep", "60"]) as other:
        try:
            while users_of(other.pid)[0] == "0":
                pass  # it is not that user yet
            found = take_user(UIDS, locks=locks)
        finally:
            other.kill()
    found.release()

    assert found.uid == UIDS[1]


@pytest.mark.parametrize("kind", ["mode", "owner", "link"])
def test_locks_that_others_could_change_are_no_locks(locks: Path, tmp_path: Path, kind: str) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    if kind == "link":
        locks.symlink_to(tmp_path / "real")
    else:
        locks.mkdir(mode=0o700)
    if kind == "mode":
        locks.chmod(0o777)
    if kind == "owner":
        os.chown(locks, UIDS[0], 0)

    with pytest.raises(OSError, match=r"locks must be a directory that belongs to the worker's user"):
        take_user(UIDS, locks=locks)


@pytest.mark.parametrize(
    ("accounts", "delegated", "said"),
    [
        ("a:x:1999:1999::/:/bin/sh\nb:x:2010:2010::/:/bin/sh\n", "c:1000:1000\nd:2010:65536\n# text\n", ""),
        ("root:x:0:0\na:x:2009:2009::/:/bin/sh\n", "", "2009 of a in {accounts}"),
        ("", "c:100:100\nd:1000:1001\n", "1000-2000 of d in {delegated}"),
        ("", "d:2009:1\n", "2009 of d in {delegated}"),
    ],
)
def test_users_that_the_machine_has_given_to_others_are_named(
    tmp_path: Path, accounts: str, delegated: str, said: str
) -> None:
    paths = {"accounts": tmp_path / "passwd", "delegated": tmp_path / "subuid"}
    paths["accounts"].write_text(accounts)
    paths["delegated"].write_text(delegated)

    found = overlap_of(range(2000, 2010), paths["accounts"], (paths["delegated"], tmp_path / "missing"))

    text = said.format_map(paths)
    assert found == (f"TRAINYARD_NODE_UIDS overlaps with {text}; choose another range" if said else "")


def test_node_whose_range_others_have_gives_no_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.host.own_users.overlap_of", lambda _: "it overlaps")

    assert lack_of_own_users(f"{UIDS[0]}-{UIDS[0]}", tmp_path) == "it overlaps"


def test_what_a_node_lacks_is_told_with_its_path(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()

    assert str(file) in lack_of_own_users(f"{UIDS[0]}-{UIDS[-1]}", file / "data")


@pytest.mark.parametrize("text", ["[]", "{}", "3", '{"lack": ""}', "{"])
def test_verdict_in_another_form_is_none(tmp_path: Path, text: str) -> None:
    record_verdict(tmp_path, "")
    (tmp_path / "run" / "own-users.json").write_text(text)

    assert recorded_lack(tmp_path) == "no node worker has tried it"


def test_supervisors_know_what_the_node_worker_found_out(tmp_path: Path) -> None:
    assert "no node worker" in recorded_lack(tmp_path)
    record_verdict(tmp_path, "")
    assert recorded_lack(tmp_path) == ""
    record_verdict(tmp_path, "no such call")
    assert recorded_lack(tmp_path) == "no such call"


@pytest.mark.parametrize(("text", "count"), [("", 0), ("700000-700009", 10), ("1000-1000", 1)])
def test_range_of_users(text: str, count: int) -> None:
    assert len(uid_range(load_settings({"TRAINYARD_NODE_UIDS": text}).node.uids)) == count


def test_directory_without_such_users_is_told(tmp_path: Path) -> None:
    assert lack_of_own_users("", tmp_path) == "TRAINYARD_NODE_UIDS is empty"
