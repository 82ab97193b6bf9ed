"""What a script can see and change inside each sandbox."""

import dataclasses
import errno
import json
import socket
import stat
import sys
import tempfile
from pathlib import Path

import pytest

from tests.unit.workers.rank.launching import JOB, Run, make_plan, write_script
from workers.sandbox.mounts import OURS, mounts
from workers.sandbox.placements import MountKind, SandboxMount
from workers.sandbox.sandbox import Bubblewrap, ProcessGroup, SandboxUnavailable, choose_sandbox
from workers.sandbox.spec import Account, FilesystemView, SandboxSpec

PROBE = """
import json, os, socket, sys
def can_read(path):
    try:
        if path.endswith(".sock"):
            return socket.socket(socket.AF_UNIX).connect(path)
        return os.listdir(path) if os.path.isdir(path) else open(path).read()
    except OSError as error:
        return f"{type(error).__name__}"
def can_write(path):
    try:
        open(path, "a").close()
        return True
    except OSError:
        return False
facts = {"read": {p: can_read(p) for p in PATHS}, "write": {p: can_write(p) for p in PATHS_W}}
facts["uts"] = os.readlink("/proc/self/ns/uts")
facts["processes"] = sorted(int(p) for p in os.listdir("/proc") if p.isdigit())
facts["capabilities"] = [l.split()[1] for l in open("/proc/self/status") if l.startswith("CapEff")][0]
print(json.dumps(facts))
"""


@pytest.fixture
def world(tmp_path):
    """A data directory with secrets, a model in it, and data outside of it."""
    data_dir = tmp_path / "data"
    (data_dir / "files" / "model").mkdir(parents=True)
    (data_dir / "files" / "model" / "config.json").write_text("{}")
    (data_dir / "files" / "other").mkdir()
    (data_dir / "secret.key").write_text("hunter2")
    (data_dir / "trainyard.db").write_text("rows")
    (data_dir / "run" / "jobs" / "job-of-another-user").mkdir(parents=True)
    (tmp_path / "corpus.jsonl").write_text("{}\n")
    return tmp_path


def probe(world, sandbox, read, write, readable=(), hidden=(), beside=None):
    paths = f"PATHS = {list(map(str, read))!r}\nPATHS_W = {list(map(str, write))!r}\n"
    script = write_script(beside or world / "mine", paths + PROBE)
    plan = make_plan(world, script, sandbox, readable=readable)
    view = dataclasses.replace(plan.view, hidden=tuple(hidden))
    run = Run(dataclasses.replace(plan, confinement=SandboxSpec(view=view)))
    try:
        assert run.finish() == 0, run.log()
        return json.loads(run.log())
    finally:
        run.close()


def test_bubblewrap_works_on_this_machine():
    assert choose_sandbox("auto").kind == "bubblewrap"
    assert choose_sandbox("process").kind == "process"


def test_without_bubblewrap_there_is_no_sandbox_and_the_error_names_the_remedies(no_bubblewrap):
    with pytest.raises(
        SandboxUnavailable, match=r"not installed; .*apt install bubblewrap.*TRAINYARD_NODE_SANDBOX=process"
    ):
        choose_sandbox("auto")
    assert choose_sandbox("process").kind == "process"


def test_bubblewrap_that_may_not_make_namespaces_is_no_sandbox(forbidden_bubblewrap):
    with pytest.raises(
        SandboxUnavailable, match=r"No permissions to create new namespace.*allow unprivileged user"
    ) as caught:
        choose_sandbox("auto")
    assert caught.value.kind == "forbidden"


def test_bubblewrap_hides_the_data_directory(world):
    data_dir = world / "data"

    facts = probe(world, Bubblewrap(), [data_dir, data_dir / "secret.key", data_dir / "run" / "jobs"], [])

    assert sorted(facts["read"][str(data_dir)]) == ["run"]
    assert facts["read"][str(data_dir / "secret.key")] == "FileNotFoundError"
    assert facts["read"][str(data_dir / "run" / "jobs")] == [JOB]


def test_bubblewrap_shows_model_and_data_read_only(world):
    model, corpus = world / "data/files/model/config.json", world / "corpus.jsonl"

    facts = probe(
        world,
        Bubblewrap(),
        [model, corpus, world / "data/files/other"],
        [model, corpus, world / "data/files/model/new"],
        readable=[model.parent, corpus],
    )

    assert facts["read"][str(model)] == "{}"
    assert facts["read"][str(corpus)] == "{}\n"
    assert facts["read"][str(world / "data/files/other")] == "FileNotFoundError"
    assert not any(facts["write"].values())


def test_bubblewrap_lets_a_rank_write_its_run_directory_only(world):
    run_dir = world / f"data/run/jobs/{JOB}/1"
    writable = [run_dir / "work/x", run_dir / "output/x", "/tmp/x", "/dev/shm/x"]
    protected = [run_dir / "code/train.py", run_dir / "spec.json", "/etc/x", "/usr/x", Path(sys.prefix) / "x"]

    facts = probe(world, Bubblewrap(), [], [*writable, *protected])

    assert [path for path, could in facts["write"].items() if could] == list(map(str, writable))
    assert not (world / "x").exists()


def test_bubblewrap_has_its_own_processes_and_no_capabilities(world):
    facts = probe(world, Bubblewrap(), [], [])

    assert facts["processes"][0] == 1
    assert len(facts["processes"]) <= 4
    assert int(facts["capabilities"], 16) == 0


def test_bubblewrap_hides_our_data_from_a_script_that_lies_beside_it(world):
    paths = f"PATHS = {[str(world / 'data/run/jobs' / JOB / '1/code/data')]!r}\n"
    script = write_script(world, paths + "PATHS_W = []\n" + PROBE)
    run = Run(make_plan(world, script, Bubblewrap()))

    try:
        assert run.finish() == 0, run.log()
        assert list(json.loads(run.log())["read"].values()) == [[]]
    finally:
        run.close()


def test_our_code_stays_readable_below_a_hidden_directory(tmp_path):
    view = FilesystemView(
        run_dir=_made(Path(sys.prefix).parent / ".trial" / "run", tmp_path), data_dir=Path(sys.prefix).parent
    )

    with Bubblewrap().enclosed(["true"], SandboxSpec(view=view)) as enclosed:
        arguments = list(enclosed.command)

    hidden = arguments.index("--tmpfs")
    assert str(Path(sys.prefix).resolve()) in arguments[hidden + 2 :]


def _made(wanted, tmp_path):
    # Only arguments are looked at: the run directory itself may lie anywhere.
    run_dir = tmp_path / wanted.name
    run_dir.mkdir()
    return run_dir


def test_process_group_links_the_script_directory(world):
    facts = probe(world, ProcessGroup(), [world / "corpus.jsonl"], [world / "data/run/written"])

    assert facts["read"][str(world / "corpus.jsonl")] == "{}\n"
    assert facts["write"][str(world / "data/run/written")]
    code = world / f"data/run/jobs/{JOB}/1/code"
    assert stat.S_ISLNK(code.lstat().st_mode)


@pytest.fixture
def home():
    """A directory of a person's home, where nothing may be seen that a job does not name."""
    with tempfile.TemporaryDirectory(dir=Path.home(), prefix=".trainyard-test-") as path:
        yield Path(path)


def test_bubblewrap_hides_what_people_and_services_keep(world, home):
    (home / "id_rsa").write_text("private")
    (home / "data.jsonl").write_text("{}\n")
    private = [path for path in ("/etc/shadow", "/etc/gshadow") if Path(path).exists()]

    facts = probe(world, Bubblewrap(), [home / "id_rsa", home / "data.jsonl", "/run", "/srv", *private], [])

    assert set(facts["read"].values()) == {"FileNotFoundError"}


def test_bubblewrap_hides_sockets_and_files_of_ours_outside_the_data_directory(world):
    storage, database = world / "storage", world / "mine" / "trainyard.db"
    (storage / "jobs" / "job-of-another-user").mkdir(parents=True)
    database.parent.mkdir()
    database.write_text("rows")
    code = world / f"data/run/jobs/{JOB}/1/code"
    with socket.socket(socket.AF_UNIX) as docker:
        docker.bind(str(storage / "docker.sock"))
        docker.listen()
        reached = [storage / "docker.sock", storage, database, code / "trainyard.db"]
        facts = probe(world, Bubblewrap(), reached, [], hidden=[storage, database], readable=[storage.parent])

    assert facts["read"][str(storage / "docker.sock")] == "FileNotFoundError"
    assert facts["read"][str(storage)] == []
    assert facts["read"][str(database)] == "PermissionError"
    assert facts["read"][str(code / "trainyard.db")] == "PermissionError"


def test_directories_that_are_not_the_jobs_can_not_be_filled(world):
    directories = ["/", "/dev", "/etc", "/root", "/var", world / "data"]
    facts = probe(world, Bubblewrap(), [], [*(Path(path, "x") for path in directories), "/var/tmp/x"], readable=[world])

    assert list(facts["write"].values()) == [False] * len(directories) + [True]


def test_root_holds_programs_and_what_they_read_of_etc(world, tmp_path):
    facts = probe(world, Bubblewrap(), ["/", "/etc", "/etc/passwd", "/etc/group"], [])

    assert set(facts["read"]["/"]) <= {
        *("bin", "dev", "etc", "lib", "lib32", "lib64", "libx32", "opt", "proc", "sbin", "sys", "tmp", "usr", "var"),
        *(path.parts[1] for path in (tmp_path, Path(sys.prefix), Path(sys.base_prefix), OURS)),
    }
    assert not {"shadow", "cron.d", "fstab", "machine-id", "sudoers", "ssh"} & set(facts["read"]["/etc"])
    assert [line.split(":")[0] for line in facts["read"]["/etc/passwd"].splitlines()] == ["root", "unknown", "job"]
    assert "docker" not in facts["read"]["/etc/group"]


def test_software_of_the_operator_is_seen_and_private_files_of_etc_are_not(world, home):
    (home / "tool").write_text("a program")
    private = Path("/etc/ssl/private")
    view = view_of(world, software=(home,))

    found = {mount.target: mount for mount in mounts(view)}

    assert found[home] == SandboxMount(MountKind.READ_ONLY, home, home)
    assert not private.exists() or found[private].kind == MountKind.EMPTY


def test_home_directory_is_no_software(world):
    found = {mount.target for mount in mounts(view_of(world, software=(Path.home(),)))}

    assert Path.home() not in found


def test_link_to_a_directory_around_hidden_paths_does_not_expose_them(world):
    link = world / "link"
    link.symlink_to(world / "data")
    hidden = world / "data" / "files"

    found = {mount.target: mount.kind for mount in mounts(view_of(world, readable=(link,), hidden=(hidden,)))}

    assert found[link / "files"] == found[hidden] == MountKind.EMPTY


def test_path_that_is_shown_already_needs_no_mount(world):
    inner = world / "data" / "files" / "model"

    found = [mount.target for mount in mounts(view_of(world, readable=(inner.parent, inner)))]

    assert inner.parent in found
    assert inner not in found


def test_job_has_the_device_files_of_its_gpus_and_no_others(world):
    devices = (Path("/dev/nvidia1"), Path("/dev/nvidia-caps/nvidia-cap3"))

    found = [mount for mount in mounts(view_of(world, devices=devices)) if mount.target.is_relative_to("/dev")]

    assert {(mount.kind, mount.target, mount.source) for mount in found} == {
        (MountKind.DEVICE, path, path) for path in devices
    }


def view_of(world, **given):
    run_dir = world / "run"
    run_dir.mkdir()
    return FilesystemView(run_dir=run_dir, data_dir=world / "data" / "run", **given)


NETWORK = """
import json, os, socket
def reached(port):
    with socket.socket() as client:
        client.settimeout(2.0)
        return client.connect_ex(("127.0.0.1", port))
own = socket.create_server(("127.0.0.1", 0))
name = socket.gethostbyname(socket.gethostname())
print(json.dumps({
    "interfaces": [interface for _, interface in socket.if_nameindex()],
    "own": reached(own.getsockname()[1]),
    "service": reached(PORT),
    "name": name,
    "ids": [os.getuid(), os.getgid(), os.environ["USER"]],
}))
"""


@pytest.mark.parametrize("own_network", [True, False])
def test_job_of_one_node_has_loopback_alone(world, own_network):
    with socket.create_server(("127.0.0.1", 0)) as service:
        script = write_script(world / "mine", f"PORT = {service.getsockname()[1]}\n{NETWORK}")
        plan = make_plan(world, script, Bubblewrap())
        confinement = dataclasses.replace(plan.confinement, own_network=own_network)
        run = Run(dataclasses.replace(plan, confinement=confinement))
        try:
            assert run.finish() == 0, run.log()
            said = json.loads(run.log())
        finally:
            run.close()

    assert said["own"] == 0
    assert said["ids"] == [1000, 1000, "job"]
    if own_network:
        assert said["interfaces"] == ["lo"]
        assert said["service"] == errno.ECONNREFUSED
        assert said["name"] == "127.0.0.1"
    else:
        assert said["service"] == 0


def test_script_and_data_in_a_home_directory_are_seen(world, home):
    (home / "data.jsonl").write_text("{}\n")
    (home / "link.jsonl").symlink_to(home / "data.jsonl")

    facts = probe(
        world,
        Bubblewrap(),
        [home / "data.jsonl", home / "link.jsonl"],
        [home / "data.jsonl"],
        readable=[home / "link.jsonl"],
        beside=home / "code",
    )

    assert set(facts["read"].values()) == {"{}\n"}
    assert not any(facts["write"].values())


def test_bubblewrap_has_a_host_name_of_its_own(world):
    assert probe(world, Bubblewrap(), [], [])["uts"] != str(Path("/proc/self/ns/uts").readlink())


def test_script_in_the_root_directory_does_not_expose_the_machine(tmp_path):
    view = FilesystemView(run_dir=tmp_path / "run", data_dir=tmp_path / "data", code=Path("/"))
    view.run_dir.mkdir()

    with Bubblewrap().enclosed(["true"], SandboxSpec(view=view)) as enclosed:
        arguments = enclosed.command

    for name in ("root", "home", "proc", "tmp", "etc/shadow"):
        target = str(view.code_dir / name)
        assert target in arguments or not Path("/", name).exists()


def test_processes_see_themselves_as_the_user_that_the_job_names(world):
    script = write_script(world / "mine", "import os, pwd; print(os.getresuid(), os.getresgid(), pwd.getpwuid(77))")
    plan = make_plan(world, script, Bubblewrap())
    account = Account(uid=77, gid=5)
    run = Run(dataclasses.replace(plan, confinement=dataclasses.replace(plan.confinement, account=account)))
    try:
        assert run.finish() == 0, run.log()
        assert run.log().startswith("(77, 77, 77) (5, 5, 5) pwd.struct_passwd(pw_name='job'")
    finally:
        run.close()
