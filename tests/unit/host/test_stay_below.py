"""Landlock as a second lock: what gets out of the mounts of its sandbox still reaches no file."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.host import landlock, system_call_filter
from tests.builders.run_specs import make_run_spec
from tests.unit.workers.rank.launching import Run, make_plan, write_script
from workers.rank import agent
from workers.sandbox.mounts import OURS
from workers.sandbox.sandbox import Bubblewrap
from workers.sandbox.spec import FilesystemView, SandboxSpec

# Its arguments: a directory of the machine that is open by mistake, and whether to stay in the sandbox.
ESCAPES = f"""
import os, sys
from pathlib import Path
sys.path.insert(0, {str(OURS)!r})
from app.host.landlock import stay_below
outside = int(sys.argv[1])
if sys.argv[2] == "stays":
    assert stay_below(Path("/"))
for path, directory in (("secret", outside), ("../own", outside), ("made", outside), ("own", None)):
    try:
        os.close(os.open(path, os.O_RDWR | (os.O_CREAT if path == "made" else 0), dir_fd=directory))
        print("opened")
    except OSError as error:
        print(type(error).__name__)
"""
# What any process of a job may do to the first one of its sandbox, where nothing but users keeps it from that.
SIGNALS = """
import os
try:
    os.kill(1, 0)
    print("done", flush=True)
except PermissionError:
    print("refused", flush=True)
"""


@pytest.fixture(scope="module", autouse=True)
def _landlock() -> None:
    if lack := landlock.lack_of_landlock(in_sandbox=True):
        pytest.skip(lack.detail)


@pytest.fixture
def leaked(tmp_path: Path) -> Iterator[int]:
    directory = tmp_path / "outside"
    directory.mkdir()
    (directory / "secret").write_text("of the worker")
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    yield descriptor
    os.close(descriptor)


@pytest.mark.parametrize(("how", "found"), [("stays", "PermissionError"), ("roams", "opened")])
def test_directory_of_the_machine_that_was_left_open_leads_to_no_file(
    tmp_path: Path, leaked: int, how: str, found: str
) -> None:
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    (run_dir / "own").touch()
    (tmp_path / "own").touch()
    view = FilesystemView(run_dir=run_dir, data_dir=tmp_path / "data", readable=())

    with Bubblewrap().enclosed([sys.executable, "-c", ESCAPES, str(leaked), how], SandboxSpec(view=view)) as enclosed:
        done = subprocess.run(
            enclosed.command, pass_fds=(*enclosed.files, leaked), capture_output=True, text=True, check=False
        )

    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [found, found, found, "opened"]


@pytest.mark.skipif(landlock.version() < 6, reason="this kernel's Landlock knows no signals")
def test_ranks_are_kept_in_their_sandbox_by_it(tmp_path: Path) -> None:
    run = Run(make_plan(tmp_path, write_script(tmp_path / "mine", SIGNALS), Bubblewrap()))

    try:
        assert run.finish() == 0, run.log()
        assert run.log() == "refused\n"
    finally:
        run.close()


# Its argument: whether the lock is required when there are as many as there may be.
STACKED = f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(OURS)!r})
from app.host.landlock import stay_below
print(next(number for number in range(100) if not stay_below(Path("/"))))
stay_below(Path("/"), required=sys.argv[1] == "required")
"""


@pytest.mark.parametrize(("how", "code"), [("required", 1), ("wanted", 0)])
def test_process_that_can_have_no_further_lock_goes_on_unless_it_is_required(how: str, code: int) -> None:
    done = subprocess.run([sys.executable, "-c", STACKED, how], capture_output=True, text=True, check=False)

    assert int(done.stdout) > 1
    assert (done.returncode, "Argument list too long" in done.stderr) == (code, code == 1)


def test_node_finds_out_that_the_filter_of_its_sandboxes_forbids_the_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    known = system_call_filter.numbers
    monkeypatch.setattr(
        system_call_filter, "numbers", lambda names: known(each for each in names if not each.startswith("landlock_"))
    )
    program = system_call_filter.compiled()
    monkeypatch.setattr(landlock, "filter_program", lambda: program)

    lack = landlock.lack_of_landlock(in_sandbox=True)

    assert lack is not None
    assert "behind the filter of system calls" in lack.detail
    assert landlock.lack_of_landlock() is None  # where it comes before the filter


@pytest.mark.parametrize("required", [True, False])
def test_agent_of_a_job_that_demands_the_lock_does_not_start_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, required: bool
) -> None:
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps(make_run_spec(run_dir=tmp_path, locked=required).to_document()))
    monkeypatch.setattr(landlock, "version", lambda: 2)
    monkeypatch.setattr(agent, "run", lambda *_: 0)
    monkeypatch.setattr(sys, "argv", ["agent", "--spec", str(spec), "--log-fds", "1", "--control-fd", "1"])

    if required:
        with pytest.raises(OSError, match="Landlock 3 is required here, and there is version 2"):
            agent.main()
    else:
        assert agent.main() == 0
