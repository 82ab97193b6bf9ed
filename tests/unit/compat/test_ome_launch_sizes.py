"""How many processes on how many nodes a trainer of OME means that starts mpirun itself."""

import pytest

from app.compat.launchers import parse_launcher
from app.compat.ome.launch_size import launch_size
from app.compat.ome.to_native import trainer_of
from app.domain.errors import BadSpec

FIELD = "spec.trainer.command"
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
    assert launch_size(numbers, RUNTIME, parse_launcher(["mpirun", *words.split(), "./a.out"], FIELD, {})) == expected


@pytest.mark.parametrize("numbers", [{"numNodes": 4}, {"numProcPerNode": 4}, {"numNodes": 2, "numProcPerNode": 2}])
def test_numbers_that_contradict_each_other_are_refused(numbers):
    with pytest.raises(BadSpec, match="mpirun is to start 6 processes") as refused:
        launch_size(numbers, RUNTIME, parse_launcher(["mpirun", "-np", "6", "./a.out"], FIELD, {}))

    assert refused.value.field == "spec.trainer.command"


def test_runtime_that_fits_the_command_decides_how_its_processes_are_spread():
    policy = {"numNodes": 3, "mpi": {"numProcPerNode": "2"}}

    assert launch_size({}, policy, parse_launcher(["mpirun", "-np", "6", "./a.out"], FIELD, {})) == ("2", 3)


def test_text_that_goes_on_after_mpirun_is_not_started_once_for_each_rank():
    longer = parse_launcher(["bash", "-c", "mpirun -np 2 ./a.out; ./b"], FIELD, {})

    with pytest.raises(BadSpec, match="where the platform starts the ranks by MPI let mpirun be the only command"):
        launch_size({}, RUNTIME, longer)
    assert launch_size({}, {}, longer) == ("auto", 1)


@pytest.mark.parametrize("command", [["mpirun", "./a.out"], ["bash", "-c", "mpirun ./a.out"]])
def test_launcher_of_mpi_is_found_behind_its_workers(command):
    def job(**container):
        return {"template": {"spec": {"template": {"spec": {"containers": [container]}}}}}

    workers = job(command=["sshd", "-D"], resources={"requests": {"nvidia.com/gpu": "2"}})
    template = {"spec": {"replicatedJobs": [workers, job(command=command)]}}

    found = trainer_of({"mlPolicy": {"mpi": {}}, "template": template})

    assert found["command"] == command
    assert found["resourcesPerNode"] == {"requests": {"nvidia.com/gpu": "2"}}
