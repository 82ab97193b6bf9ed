"""Which ranks are forked, where something can fork them."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from trainyard.protocol.run_spec import RunSpec
from workers.job_secrets import JOB_SECRET
from workers.rank.rank_process import ForkRank, starter

PROGRAM = ["sh", "-c", "exit 3"]
FORKED = 1 << 30


@pytest.fixture
def spec(tmp_path: Path) -> RunSpec:
    return RunSpec(run_dir=tmp_path, framework="HF_TRAINER", training_type="RLHF", world_size=1)


@pytest.mark.parametrize("given", [[], [{}], [{JOB_SECRET: "s"}, {JOB_SECRET: "s"}]], ids=str)
def test_ranks_of_a_job_without_variables_are_forked(spec: RunSpec, given: Sequence[Mapping[str, str]]) -> None:
    start = starter(lambda *_: FORKED, given)

    assert start(spec, PROGRAM, spec.run_dir, 1, os.environ) == FORKED


@pytest.mark.parametrize(
    ("fork", "given"),
    [
        (lambda *_: FORKED, [{"COLOUR": "green"}]),
        (lambda *_: FORKED, [{JOB_SECRET: "s"}, {JOB_SECRET: "s", "TOKEN": "of the other role"}]),
        (lambda *_: None, [{}]),
        (None, [{}]),
    ],
    ids=["variables of the job", "of one role", "cannot be forked", "no fork server"],
)
def test_other_ranks_start_as_programs(
    spec: RunSpec, fork: ForkRank | None, given: Sequence[Mapping[str, str]]
) -> None:
    pid = starter(fork, given)(spec, PROGRAM, spec.run_dir, 1, os.environ)

    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
