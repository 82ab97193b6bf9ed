"""Cores of an attempt's own: who has one is said by locks of files."""

import gc
import subprocess
import sys
from pathlib import Path

import pytest

from workers.sandbox.cores import OwnCores, ranges, take_cores

NOWHERE = Path("/nowhere")


@pytest.fixture
def two_memory_nodes(tmp_path: Path) -> Path:
    """Of cores 0 to 3, and 4 to 7."""
    for core in range(8):
        (tmp_path / "system" / "node" / f"node{core // 4}" / f"cpu{core}").mkdir(parents=True)
        (tmp_path / "system" / "node" / f"node{core // 4}" / "cpumap").touch()
    return tmp_path / "system"


def test_no_core_is_given_twice_until_it_is_released(tmp_path: Path) -> None:
    first = take_cores(tmp_path, 2, range(4), system=NOWHERE)
    second = take_cores(tmp_path, 1, range(4), system=NOWHERE)
    third = take_cores(tmp_path, 2, range(4), system=NOWHERE)

    assert (first.numbers, second.numbers, third.numbers) == ((0, 1), (2,), ())
    assert (third.wanted, third.of) == (2, 4)
    first.release()
    first.release()
    assert take_cores(tmp_path, 3, range(4), system=NOWHERE).numbers == (0, 1, 3)


def test_cores_come_from_the_memory_node_that_they_fit_best(tmp_path: Path, two_memory_nodes: Path) -> None:
    held = [take_cores(tmp_path, 1, range(8), system=two_memory_nodes) for _ in range(2)]

    fitting = take_cores(tmp_path, 2, range(8), system=two_memory_nodes)
    other = take_cores(tmp_path, 3, range(8), system=two_memory_nodes)

    assert [each.numbers for each in held] == [(0,), (1,)]
    assert (fitting.numbers, other.numbers) == ((2, 3), (4, 5, 6))


def test_job_larger_than_a_memory_node_has_those_of_several(tmp_path: Path, two_memory_nodes: Path) -> None:
    small = take_cores(tmp_path, 1, range(8), system=two_memory_nodes)

    large = take_cores(tmp_path, 6, range(8), system=two_memory_nodes)

    assert (small.numbers, large.numbers) == ((0,), (1, 2, 4, 5, 6, 7))


def test_cores_are_free_when_their_process_is_killed(tmp_path: Path) -> None:
    code = (
        "import pathlib, sys, time\nfrom workers.sandbox.cores import take_cores\n"
        "held = take_cores(pathlib.Path(sys.argv[1]), 2, range(2))\nprint(held.numbers, flush=True)\ntime.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "(0, 1)\n"
        assert take_cores(tmp_path, 1, range(2)).numbers == ()
        owner.kill()
    assert take_cores(tmp_path, 1, range(2)).numbers == (0,)


def test_cores_that_are_forgotten_are_free(tmp_path: Path) -> None:
    forgotten: OwnCores | None = take_cores(tmp_path, 2, range(2))
    assert forgotten is not None
    forgotten = None
    gc.collect()

    assert take_cores(tmp_path, 2, range(2)).numbers == (0, 1)


def test_no_cores_are_no_files(tmp_path: Path) -> None:
    assert take_cores(tmp_path, 0, range(2)).numbers == ()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("cores", "text"), [((), ""), ((3,), "3"), ((0, 1, 2, 5, 7, 6), "0-2,5-7")])
def test_cores_are_named_as_the_kernel_does(cores: tuple[int, ...], text: str) -> None:
    assert ranges(cores) == text
