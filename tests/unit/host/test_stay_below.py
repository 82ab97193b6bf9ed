"""Landlock as a second lock: what gets out of the mounts of its sandbox still reaches no file."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.host import landlock
from tests.unit.workers.rank.launching import Run, make_plan, write_script
from workers.sandbox.mounts import OURS
from workers.sandbox.sandbox import Bubblewrap
from workers.sandbox.spec import FilesystemView, SandboxSpec

pytestmark = pytest.mark.skipif(landlock.lack_of_landlock() is not None, reason="this kernel has no Landlock")

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
