"""A Run:ai training whose command is to succeed several times, one run after the other or several at a time."""

import shlex
import subprocess
from pathlib import Path

import pytest

from tests.unit.compat.test_runai import translated

NOTES = 'echo "$JOB_COMPLETION_INDEX $1"; [ "$JOB_COMPLETION_INDEX" != "$2" ] || exit 7'
# Each run waits until another one is there, too: alone, none of them ends.
MEETS = """
touch "$1/$JOB_COMPLETION_INDEX"
while [ ! -e "$1/$((JOB_COMPLETION_INDEX ^ 1))" ]; do sleep 0.01; done
"""


def ended(script: Path, args: str, **spec: int) -> tuple[int, list[str]]:
    native = translated({"command": shlex.join(["bash", str(script)]), "args": args, **spec})
    assert native.warnings == []
    words = native.document["training_config"]["framework"]["custom_command"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stdout.splitlines()


@pytest.fixture
def script(tmp_path: Path) -> Path:
    return tmp_path / "my run.sh"


def test_command_runs_until_enough_runs_have_succeeded(script: Path) -> None:
    script.write_text(NOTES)

    assert ended(script, "'a b' 9", completions=3) == (0, ["0 a b", "1 a b", "2 a b"])
    assert ended(script, "'a b' 1", completions=3) == (7, ["0 a b", "1 a b"])


@pytest.mark.parametrize(("completions", "parallelism"), [(4, 2), (2, 9)])
def test_runs_are_side_by_side(script: Path, tmp_path: Path, completions: int, parallelism: int) -> None:
    script.write_text(MEETS)

    code, _ = ended(script, str(tmp_path), completions=completions, parallelism=parallelism)

    assert code == 0
    assert {path.name for path in tmp_path.iterdir() if path != script} == {str(n) for n in range(completions)}


def test_last_parallel_runs_may_be_fewer(script: Path) -> None:
    script.write_text(NOTES)

    code, lines = ended(script, "x 9", completions=5, parallelism=2)

    assert (code, sorted(lines)) == (0, ["0 x", "1 x", "2 x", "3 x", "4 x"])


def test_first_failure_ends_the_runs_beside_it_and_those_that_would_follow(script: Path, tmp_path: Path) -> None:
    script.write_text('[ "$JOB_COMPLETION_INDEX" = 1 ] || exit 3; exec sleep 300')

    code, _ = ended(script, str(tmp_path), completions=4, parallelism=2)

    assert code == 3


def test_without_completions_there_is_one_run(script: Path) -> None:
    script.write_text('echo "${JOB_COMPLETION_INDEX-none}"')

    assert ended(script, "x", parallelism=2) == (0, ["none"])
