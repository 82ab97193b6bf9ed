"""A node finds out whether its sandboxes show parts of volume claims by mounting one."""

import subprocess
from pathlib import Path

import pytest

from workers.sandbox import part_trial, staging
from workers.sandbox.part_trial import lack_of_claim_parts


def test_part_that_is_shown_is_no_lack_and_nothing_is_left(tmp_path: Path) -> None:
    assert lack_of_claim_parts(tmp_path / "data") == ""

    assert [path.name for path in (tmp_path / "data").iterdir()] == []


def test_reason_is_what_the_program_says_that_may_not_mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "_BECOMES", "import sys; sys.exit('no part of a volume claim can be mounted')")
    assert lack_of_claim_parts(tmp_path / "data") == "no part of a volume claim can be mounted"

    monkeypatch.setattr(staging, "_BECOMES", "import sys; sys.exit(3)")
    assert lack_of_claim_parts(tmp_path / "other") == "exit code 3"


def test_node_without_bubblewrap_and_one_that_never_answers_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part_trial, "_SECONDS", 0.5)
    monkeypatch.setattr(staging, "_BECOMES", "import time; time.sleep(60)")
    assert "timed out" in lack_of_claim_parts(tmp_path / "slow")

    def missing(*_: object, **__: object) -> None:
        raise FileNotFoundError(2, "No such file or directory", "bwrap")

    monkeypatch.setattr(subprocess, "run", missing)
    assert "bwrap" in lack_of_claim_parts(tmp_path / "bare")
