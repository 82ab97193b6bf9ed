"""Landlock in place of namespaces: what its kernel keeps a program out of, and what it leaves to it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from app.domain.nodes.sandboxes import UNLOCKED
from app.host import landlock
from workers.sandbox.landlock_rules import file_rules
from workers.sandbox.mounts import OURS
from workers.sandbox.sandbox import Landlocked, SandboxUnavailable, choose_sandbox
from workers.sandbox.spec import FilesystemView, SandboxSpec

needs_landlock = pytest.mark.usefixtures("working_landlock")

TRIES = """
import os, sys
for action, path in zip(sys.argv[1::2], sys.argv[2::2]):
    try:
        if action == "list": os.listdir(path)
        elif action == "truncate": os.truncate(path, 0)
        elif action == "signal": os.kill(int(path), 0)
        else: open(path, {"read": "rb", "write": "ab", "make": "xb"}[action]).close()
        print("done")
    except OSError as error:
        print(type(error).__name__)
"""


@pytest.fixture(scope="module")
def working_landlock() -> None:
    if lack := landlock.lack_of_landlock():
        pytest.skip(lack.detail)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """With a run directory, data of the job, and another directory."""
    for name in ("run/work", "data/of/others", "other"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("run/file", "data/file", "data/of/file", "data/of/others/file", "other/file"):
        (tmp_path / name).write_text("text")
    return tmp_path


def view_of(place: Path, *, hidden: tuple[Path, ...] = ()) -> FilesystemView:
    return FilesystemView(run_dir=place / "run", data_dir=place / "other", readable=(place / "data",), hidden=hidden)


def tried(view: FilesystemView, *asked: object) -> list[str]:
    with Landlocked().enclosed([sys.executable, "-c", TRIES, *map(str, asked)], SandboxSpec(view=view)) as enclosed:
        done = subprocess.run(
            enclosed.command, pass_fds=enclosed.files, cwd=view.run_dir, capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@needs_landlock
def test_job_has_its_own_files_alone(place: Path) -> None:
    data, other, run = place / "data/file", place / "other/file", place / "run/file"

    allowed = tried(view_of(place), "read", data, "list", data.parent, "write", run, "make", place / "run/new")
    refused = tried(view_of(place), "write", data, "truncate", data, "read", other, "list", other.parent)
    refused += tried(view_of(place), "truncate", other, "make", "/tmp/new", "make", place / "new", "list", "/root")

    assert allowed == ["done"] * 4
    assert refused == ["PermissionError"] * 8
    assert other.read_text() == "text"


@needs_landlock
def test_what_is_hidden_below_an_input_stays_hidden(place: Path) -> None:
    view = view_of(place, hidden=(place / "data/of/others",))

    assert tried(view, "read", place / "data/of/file", "read", place / "data/file") == ["done", "done"]
    assert tried(view, "read", place / "data/of/others/file") == ["PermissionError"]


@needs_landlock
@pytest.mark.skipif(landlock.version() < 6, reason="signals are kept in since Linux 6.12")
def test_processes_outside_get_no_signal(place: Path) -> None:
    assert tried(view_of(place), "signal", os.getpid()) == ["PermissionError"]


@needs_landlock
def test_our_packages_are_found_in_a_checkout_whose_other_files_are_closed(place: Path) -> None:
    code = "import workers.rank.agent; open('pyproject.toml')"
    command = ["sh", "-c", 'cd "$0" && exec "$@"', str(OURS), sys.executable, "-c", code]
    with Landlocked().enclosed(command, SandboxSpec(view=view_of(place))) as enclosed:
        done = subprocess.run(
            enclosed.command, pass_fds=enclosed.files, cwd=place / "run", capture_output=True, text=True, check=False
        )

    assert done.stderr.splitlines()[-1].startswith("PermissionError: [Errno 13] Permission denied: 'pyproject.toml'")


@needs_landlock
def test_memory_and_environment_of_processes_outside_are_closed_even_to_root(place: Path) -> None:
    outside = f"/proc/{os.getpid()}"

    assert tried(view_of(place), "read", f"{outside}/cmdline") == ["done"]
    assert tried(view_of(place), "read", f"{outside}/environ", "read", f"{outside}/mem") == ["PermissionError"] * 2


@needs_landlock
def test_programs_that_it_starts_have_no_capabilities(place: Path) -> None:
    command = ["sh", "-c", "grep Cap /proc/self/status; ulimit -H -c 0; ulimit -H -c 1 2> /dev/null || echo kept"]
    with Landlocked().enclosed(command, SandboxSpec(view=view_of(place))) as enclosed:
        said = subprocess.check_output(enclosed.command, pass_fds=enclosed.files, cwd=place / "run", text=True)

    sets = dict(line.split(":\t") for line in said.splitlines()[:-1])
    assert {sets[name] for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {"0" * 16}
    assert said.endswith("kept\n")


@needs_landlock
def test_temporary_files_and_system_calls_are_those_of_a_sandbox(place: Path) -> None:
    code = "import os, tempfile; print(tempfile.gettempdir(), open('/proc/self/status').read().split('Seccomp:')[1][1])"
    with Landlocked().enclosed([sys.executable, "-c", code], SandboxSpec(view=view_of(place))) as enclosed:
        said = subprocess.check_output(enclosed.command, pass_fds=enclosed.files, cwd=place / "run", text=True)

    assert said.split() == [str(place / "run" / "tmp"), "2"]


def test_rules_leave_out_what_does_not_exist(place: Path) -> None:
    paths = [path for path, _ in file_rules(view_of(place))]

    assert place / "run" in paths
    assert place / "data" in paths
    assert place / "other" not in paths


def test_node_whose_kernel_has_none_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landlock, "version", lambda: 2)

    with pytest.raises(SandboxUnavailable, match=r"has version 2, and 3 is needed \(Linux 6\.2, .*boot a kernel") as no:
        choose_sandbox("landlock")
    assert no.value.kind == UNLOCKED


@needs_landlock
def test_setting_chooses_it_and_the_node_reports_it() -> None:
    chosen = choose_sandbox("landlock")

    assert (type(chosen), chosen.reported, chosen.kind) == (Landlocked, "landlock", "process")
