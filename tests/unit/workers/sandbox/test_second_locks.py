"""Programs beside attempts that run what users made, or read it, have a second lock: no signal leaves their sandbox."""

import json
import sys
import tempfile
import time
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import pytest

from app.host import landlock
from config.settings import load_settings
from workers.attempt_failed import AttemptFailed
from workers.images.image_tools import ImageTools
from workers.prepare.files import records
from workers.prepare.grading.run import run_grader
from workers.prepare.packages.uv_process import UvProcess
from workers.sandbox.sandbox import Bubblewrap
from workers.tracking import confined
from workers.trainers import inspection

SHELL = "/bin/sh"
STAYS = ["-c", "kill -0 1 && exit 9; exit 0"]  # the first process of the sandbox has the same user


@pytest.fixture
def _no_signals() -> None:
    if lack := landlock.lack_of_landlock(in_sandbox=True):
        pytest.skip(lack.detail)
    if landlock.version() < 6:
        pytest.skip("this kernel's Landlock knows no signals")


@pytest.mark.usefixtures("_no_signals")
def test_grader_that_is_tried_is_kept_in(tmp_path: Path) -> None:
    source = "import os\ndef grade(sample, item):\n    os.kill(1, 0)"
    grading = json.dumps({"source": source, "sample": {"output_text": "", "output_tools": []}, "item": {}})
    settings = load_settings({"TRAINYARD_DATA_DIR": str(tmp_path), "TRAINYARD_NODE_UIDS": ""})

    found = run_grader(settings, {"grading": grading, "seconds": 60.0})

    assert found == {"runtime_error": "line 3: PermissionError: [Errno 1] Operation not permitted"}


@pytest.mark.usefixtures("_no_signals")
def test_what_builds_packages_is_kept_in(tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    process = UvProcess(
        program=Path(SHELL),
        sandbox=Bubblewrap(),
        directory=tmp_path / "made",
        data_dir=tmp_path / "data",
        readable=(),
        private=(),
        max_bytes=1 << 20,
        until=time.monotonic() + 60,
    )

    process.run(STAYS, index="")
    with pytest.raises(AttemptFailed):  # so an exit code counts
        process.run(["-c", "exit 9"], index="")


@pytest.mark.usefixtures("_no_signals")
def test_what_unpacks_images_is_kept_in(tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    tools = ImageTools(
        sandbox=Bubblewrap(),
        directory=tmp_path / "made",
        data_dir=tmp_path / "data",
        max_bytes=1 << 20,
        until=time.monotonic() + 60,
    )

    with tempfile.TemporaryFile() as answer:
        assert tools._run([SHELL, *STAYS], answer, network=False, readable=()) == ""
        assert tools._run([SHELL, "-c", "echo failed >&2; exit 9"], answer, network=False, readable=())


class _Locked(Exception):
    pass


@pytest.mark.parametrize(
    ("program", "arguments"),
    [
        (records, ["--purpose=batch", "--line-bytes=1", "--most-bytes=1", "--memory-bytes=1"]),
        (inspection, ["--spec=/none/spec.json"]),
        (confined, ["--gate=0"]),
    ],
    ids=["uploaded files", "models and data", "tracking"],
)
def test_program_locks_itself_before_it_reads_anything(
    monkeypatch: pytest.MonkeyPatch, program: ModuleType, arguments: list[str]
) -> None:
    def locks(directory: Path) -> NoReturn:
        assert directory == Path("/")
        raise _Locked

    monkeypatch.setattr(program, "stay_below", locks)
    monkeypatch.setattr(sys, "argv", ["program", *arguments])

    with pytest.raises(_Locked):
        program.main()
