"""The table of tests that run nightly and not in CI."""

import tomllib

import pytest

from scripts.lanes import ROOT
from tests.nightly import TABLE, is_nightly, table


def test_each_group_says_why_and_each_entry_names_a_test() -> None:
    for group in tomllib.loads(TABLE.read_text(encoding="utf-8"))["of"]:
        assert len(group["why"]) > 30, group
    for entry in table():
        file, _, name = entry.partition("::")
        if "*" in file:  # all variants of a name in a folder
            assert (ROOT / file.partition("*")[0]).is_dir(), entry
            continue
        source = (ROOT / file).read_text(encoding="utf-8")
        assert f"def {name.partition('[')[0].removesuffix('*')}" in source, f"there is no {entry}"


@pytest.mark.parametrize(
    "test",
    [
        "tests/e2e/test_gangs.py::test_a_training_on_two_nodes_is_paused_and_resumed_exactly[MEGATRON]",
        "tests/faults/test_two_coordinators.py::test_one_of_two_plans_whatever_happens_to_them",
        "tests/stateful/test_lifecycle.py::test_the_machine_finds_a_broken_rule[without_fencing-a-4]",
        "tests/integration/services/sweeps/test_halting.py::test_halving_goes_to_the_end[sqlite-asha]",
    ],
)
def test_listed_variant_runs_nightly(test: str) -> None:
    assert is_nightly(test)


@pytest.mark.parametrize(
    "test",
    [
        "tests/e2e/test_gangs.py::test_a_training_on_two_nodes_is_paused_and_resumed_exactly[HF_TRAINER]",
        "tests/stateful/test_lifecycle.py::test_random_lives_keep_every_promise[postgresql]",
        "tests/integration/services/sweeps/test_halting.py::test_halving_goes_to_the_end[postgresql-asha]",
    ],
)
def test_variant_that_is_not_listed_runs_in_ci(test: str) -> None:
    assert not is_nightly(test)
