"""Outputs of nodes other than that of rank 0, under real supervisors: all are kept, or the attempt is repeated."""

import pytest

from app.domain.lifecycle.states import JobState
from app.models import Artifact, Job, Lease
from app.services.attempts import artifacts
from app.storage.object_keys import is_event_file
from tests.builders.factories import make_node
from tests.systems.roles import begin, role, settings_of, submit
from tests.systems.supervising import World, rows
from workers.node import spawn_supervisor
from workers.node.attempt_manager import AttemptManager

pytestmark = pytest.mark.long

OTHER = "other"
WRITES = """
import os, pathlib
output = pathlib.Path(os.environ["TRAINYARD_OUTPUT_DIR"])
(output / "found").mkdir(exist_ok=True)
(output / "found/it").write_text(os.environ["TRAINYARD_ROLE"] + os.environ["TRAINYARD_ATTEMPT"])
"""
# The supervisor of the second node dies when its output is in the storage and not recorded yet.
DIES = """
import os, signal, sys
from workers.supervisor import finalize, main
del sys.argv[1]
store = finalize.store_node_output
def stored_and_killed(*given):
    store(*given)
    os.kill(os.getpid(), signal.SIGKILL)
finalize.store_node_output = stored_and_killed
sys.exit(main.main())
"""


def on_two_nodes(world: World, script: str) -> str:
    with world.db.write() as session:
        make_node(session, OTHER, devices=4)
    return submit(world, [role("trainer", script, gpus=4), role("helper", script, gpus=4)])


def contents(world: World, job_id: str) -> dict[str, bytes]:
    found = {}
    for row in rows(world, Artifact, job_id=job_id):
        assert not row.pending, row.path
        if is_event_file(row.path):
            continue
        with artifacts.opened(world.storage, row) as file:
            found[row.path] = file.read()
    return found


def test_supervisor_that_is_killed_before_its_output_is_recorded_makes_the_job_repeat(
    any_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = on_two_nodes(any_world, WRITES)
    ordinary, forked = spawn_supervisor.supervisor_command, any_world.spawn

    def dies(job: str, attempt: int) -> list[str]:
        words = ordinary(job, attempt)
        module = words.index("-m")
        return [*words[:module], "-c", DIES, *words[module + 1 :]]

    with monkeypatch.context() as patched:
        patched.setattr(spawn_supervisor, "supervisor_command", dies)
        any_world.spawn = spawn_supervisor.spawn_supervisor
        begin(any_world, job_id)
    lost = rows(any_world, Lease, job_id=job_id, part=1)[0]
    manager = AttemptManager(settings_of(any_world, lost.node), any_world.db, lost.node)

    def is_queued() -> bool:
        manager.poll()
        return any_world.job(job_id).state is JobState.QUEUED

    any_world.wait(is_queued, 40.0, job_id)
    assert any_world.attempt(job_id).cause == "SUPERVISOR_LOST"
    assert "COMPLETED" not in any_world.states(job_id)

    any_world.spawn = forked
    begin(any_world, job_id)

    assert any_world.wait_for_end(job_id).state is JobState.COMPLETED, any_world.describe(job_id)
    assert contents(any_world, job_id) == {
        "found/it": b"trainer2",
        "node-outputs/attempt-2-node-1/found/it": b"helper2",
    }


def test_limit_of_the_output_holds_for_all_nodes_together(any_world: World) -> None:
    large = "import os, pathlib\npathlib.Path(os.environ['TRAINYARD_OUTPUT_DIR'], 'large').write_bytes(bytes(700_000))"
    job_id = on_two_nodes(any_world, large)
    with any_world.db.write() as session:
        job = session.get_one(Job, job_id)
        job.spec = {**job.spec, "output_config": {"max_output_size_mb": 1}}
    begin(any_world, job_id)

    job = any_world.wait_for_end(job_id)

    assert (job.state, job.error_type) == (JobState.FAILED, "EXPORT_FAILED"), any_world.describe(job_id)
    assert "outputs of all nodes together are larger than the 1 MB that output_config.max_output_size_mb allows" in (
        job.error_message or ""
    )
