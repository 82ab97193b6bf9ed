"""Which ranks of a job with roles are one world, under real supervisors on one node and on two, also by torch."""

import shlex
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from app.domain.lifecycle.events import EventType
from app.domain.lifecycle.states import JobState
from tests.builders.factories import make_node
from tests.systems.roles import begin, ends, events_of, lines_by_rank, role, submit
from tests.systems.supervising import World
from tests.unit.compat.test_runai import divided, translated

SHOWS = """
import os
print(*[os.environ[name] for name in "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE NODE_RANK NNODES".split()])
"""
# The sum of 10 to the power of each rank tells which ranks have met.
ADDS = """
import os
import torch, torch.distributed as dist
dist.init_process_group("gloo")
met = torch.tensor([10 ** dist.get_rank()])
dist.all_reduce(met)
print(os.environ["TRAINYARD_ROLE"], dist.get_rank(), dist.get_world_size(), int(met), flush=True)
dist.destroy_process_group()
"""
TWO = {"config": {"num_proc_per_node": 2}}
FAILS_ONCE = (
    'import os, pathlib; here = pathlib.Path("done"); seen = here.exists(); here.touch(); os._exit(0 if seen else 5)'
)
Ended = Callable[..., str]


@pytest.fixture
def ended(any_world: World) -> Ended:
    """The id of a job with these roles that has completed; on ``nodes`` nodes of four CPU slots each."""

    def run(*tasks: Mapping[str, Any], nodes: int = 1, **training: Any) -> str:
        if nodes > 1:
            with any_world.db.write() as session:
                make_node(session, "other", devices=4)
        job_id = submit(any_world, tasks, **training)
        begin(any_world, job_id)
        state = any_world.wait_for_end(job_id, 100).state
        assert state is JobState.COMPLETED, any_world.describe(job_id)
        return job_id

    return run


@pytest.mark.long
@pytest.mark.parametrize("nodes", [1, 2])
def test_roles_with_the_jobs_world_meet_in_one_process_group(any_world: World, ended: Ended, nodes: int) -> None:
    slots = 1 if nodes == 1 else 3  # of which a node has four
    master = role("master", ADDS, gpus=slots, program={"config": {"num_proc_per_node": 1}}, world="job")
    alone = role("alone", SHOWS, gpus=1)
    worker = role("worker", ADDS, gpus=slots, program=TWO, world="job")

    job_id = ended(master, alone, worker, nodes=nodes)

    assert len(any_world.attempt(job_id, 1).node_names) == nodes
    # Beside warnings of torch about the names of hosts.
    assert {rank: lines[-1] for rank, lines in lines_by_rank(any_world, job_id).items()} == {
        0: "master 0 3 111",
        1: "0 1 0 1 0 1",
        2: "worker 1 3 111",
        3: "worker 2 3 111",
    }


def test_variables_count_over_instances_with_different_numbers_of_processes(any_world: World, ended: Ended) -> None:
    job_id = ended(role("a", SHOWS, program=TWO, world="job"), role("b", SHOWS, count=2, world="job"))

    assert lines_by_rank(any_world, job_id) == {
        0: ["0 4 0 2 0 3"],
        1: ["1 4 1 2 0 3"],
        2: ["2 4 0 1 1 3"],
        3: ["3 4 0 1 2 3"],
    }


@pytest.mark.long
def test_instances_may_each_be_a_world(any_world: World, ended: Ended) -> None:
    listens = "import os, socket, time; place = os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT'])"
    both = f"{SHOWS}\n{listens}\nserver = socket.create_server(place); time.sleep(1)"

    job_id = ended(role("copy", both, count=2, world="instance"))

    assert lines_by_rank(any_world, job_id) == {0: ["0 1 0 1 0 1"], 1: ["0 1 0 1 0 1"]}


def test_runais_master_and_workers_are_one_world(any_world: World, ended: Ended) -> None:
    spec = {"command": "python3", "args": f"-c {shlex.quote(SHOWS)}", "numWorkers": 2, "cleanPodPolicy": "None"}
    native = divided(spec, masterSpec={"environmentVariables": [{"name": "LEADS", "value": "1"}]})

    job_id = ended(*native.document["tasks"])

    assert lines_by_rank(any_world, job_id) == {0: ["0 3 0 1 0 3"], 1: ["1 3 0 1 1 3"], 2: ["2 3 0 1 2 3"]}


@pytest.mark.long
def test_workers_that_would_run_on_end_with_runais_master(any_world: World, ended: Ended) -> None:
    native = divided({"command": "sleep", "args": "300"}, masterSpec={"command": "sleep", "args": "1"})

    job_id = ended(*native.document["tasks"])

    assert ends(any_world, job_id) == {"master 0": 0, "worker 0": 143}


def test_a_copy_of_runai_that_fails_starts_again_alone(any_world: World, ended: Ended) -> None:
    code = (
        f'if [ "$JOB_COMPLETION_INDEX" = 2 ]; then exec python3 -c \'{FAILS_ONCE}\'; fi; echo "$JOB_COMPLETION_INDEX"'
    )
    native = translated({"command": "sh", "args": f"-c {shlex.quote(code)}", "completions": 5, "parallelism": 2})

    job_id = ended(*native.document["tasks"], max_retries=3)

    assert lines_by_rank(any_world, job_id) == {0: ["0", "4"], 1: ["1", "3"]}
    assert len(events_of(any_world, job_id, EventType.TASK_RESTARTED)) == 1
