"""How many processes on how many nodes a trainer of OME means that starts mpirun itself."""

import pytest

from app.compat.ome.launch_size import launch_size
from app.compat.ome.launchers import parse_launcher
from app.domain.errors import BadSpec

RUNTIME = {"numNodes": 1, "mpi": {"numProcPerNode": "1"}}  # OME's mpi-runtime


@pytest.mark.parametrize(
    ("words", "numbers", "expected"),
    [
        ("-np 6", {}, ("6", 1)),
        ("-np 6", {"numNodes": 2}, ("3", 2)),
        ("-np 6 -N 2", {}, ("2", 3)),
        ("-np 6", {"numProcPerNode": "2"}, ("2", 3)),
        ("-np 6", {"numNodes": 3, "numProcPerNode": 2}, ("2", 3)),
        ("-np 6", {"numProcPerNode": "auto", "numNodes": 2}, ("auto", 2)),
        ("-np 1", {}, ("1", 1)),
        ("-N 4", {}, ("4", 1)),
        ("-N 0 -np 6", {}, ("0", 1)),  # refused with the document
        ("", {}, ("1", 1)),
    ],
)
def test_mpirun_counts_the_processes_of_all_nodes(words, numbers, expected):
    assert launch_size(numbers, RUNTIME, parse_launcher(["mpirun", *words.split(), "./a.out"])) == expected


@pytest.mark.parametrize("numbers", [{"numNodes": 4}, {"numProcPerNode": 4}, {"numNodes": 2, "numProcPerNode": 2}])
def test_numbers_that_contradict_each_other_are_refused(numbers):
    with pytest.raises(BadSpec, match="mpirun is to start 6 processes") as refused:
        launch_size(numbers, RUNTIME, parse_launcher(["mpirun", "-np", "6", "./a.out"]))

    assert refused.value.field == "spec.trainer.command"


def test_runtime_that_fits_the_command_decides_how_its_processes_are_spread():
    policy = {"numNodes": 3, "mpi": {"numProcPerNode": "2"}}

    assert launch_size({}, policy, parse_launcher(["mpirun", "-np", "6", "./a.out"])) == ("2", 3)
