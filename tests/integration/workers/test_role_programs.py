"""The programs of roles: scripts, variables, secrets, packages, processes and hooks, under a real supervisor."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from app.domain.lifecycle.states import JobState
from app.domain.spec.frameworks.requirements import PACKAGES
from app.domain.spec.secrets import MASK
from app.models import Job, Node
from app.security.secrets import SecretBox
from tests.systems.apps import SECRET_KEY
from tests.systems.package_index import Index, package_index
from tests.systems.roles import begin, lines_by_rank, role, submit
from tests.systems.supervising import NODE, World

SHOWS = "import os; print(*[os.environ.get(name) for name in ('A', 'B', 'TOKEN')], flush=True)"


def ended(world: World, *tasks: dict[str, Any], **training: Any) -> str:
    """The id of a job with these roles that has completed."""
    job_id = submit(world, tasks, **training)
    begin(world, job_id)
    assert world.wait_for_end(job_id, 60).state is JobState.COMPLETED, world.describe(job_id)
    return job_id


def test_scripts_may_lie_in_different_directories_and_have_arguments(world: World) -> None:
    scripts = {}
    for name in ("a", "b"):
        scripts[name] = world.directory / "mine" / name / "main.py"
        scripts[name].parent.mkdir()
        scripts[name].write_text("import sys, beside; print(beside.NAME, *sys.argv[1:])")
        (scripts[name].parent / "beside.py").write_text(f"NAME = {name!r}")
    framework = {"type": "CUSTOM", "custom_script_path": str(scripts["a"]), "custom_arguments": ["--all"]}
    other = {"custom_script_path": str(scripts["b"]), "custom_arguments": ["--role", "$(TRAINYARD_ROLE)"]}

    job_id = ended(world, role("first"), role("second", program=other), framework=framework)

    assert lines_by_rank(world, job_id) == {0: ["a --all"], 1: ["b --role second"]}


def test_variables_of_a_role_are_added_to_those_of_the_job(world: World) -> None:
    other = {"environment": {"B": "role", "C": "only"}}

    job_id = ended(
        world, role("first", SHOWS), role("second", SHOWS, program=other), environment={"A": "job", "B": "job"}
    )

    assert lines_by_rank(world, job_id) == {0: ["job job None"], 1: ["job role None"]}


def test_secret_variables_of_a_role_reach_it_alone_and_are_masked(make_world: Callable[..., World]) -> None:
    world = make_world(TRAINYARD_SECURITY_SECRET_KEY=SECRET_KEY)
    box = SecretBox(world.settings.security.secret_key)
    tasks = [role("first", SHOWS), role("second", SHOWS, program={"environment": {"TOKEN": MASK, "A": "role"}})]
    job_id = submit(world, tasks, environment={"A": MASK})
    secrets = {"training_config.environment.A": "hunter-one", "tasks.1.training_config.environment.TOKEN": "hunter-two"}
    with world.db.write() as session:
        session.get_one(Job, job_id).sealed_secrets = box.seal(secrets)
    begin(world, job_id)

    assert world.wait_for_end(job_id, 60).state is JobState.COMPLETED, world.describe(job_id)
    assert lines_by_rank(world, job_id) == {0: [f"{MASK} None None"], 1: [f"role None {MASK}"]}


def test_several_processes_of_an_instance_have_a_world_of_their_role(world: World) -> None:
    shows = "import os; print(*[os.environ[n] for n in 'RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE'.split()])"
    two = {"config": {"num_proc_per_node": 2}}

    job_id = ended(world, role("single", shows), role("double", shows, count=2, program=two))

    assert lines_by_rank(world, job_id) == {
        0: ["0 1 0 1"],
        1: ["0 4 0 2"],
        2: ["1 4 1 2"],
        3: ["2 4 0 2"],
        4: ["3 4 1 2"],
    }


@pytest.mark.long
def test_hooks_report_for_the_first_role_and_metrics_for_each(world: World) -> None:
    reports = """
import os
from trainyard import hooks
run = hooks.init()
run.log_metrics({"value": 1.0 + run.rank}, step=1 + run.rank)
print("rank", run.rank, "of", run.world_size, flush=True)
"""

    job_id = ended(world, role("main", reports), role("other", reports, count=2))

    assert lines_by_rank(world, job_id) == {n: [f"rank {n} of 3"] for n in range(3)}
    job = world.job(job_id)
    assert {name: value for name, value in job.latest_metrics.items() if "value" in name} == {
        "value": 1.0,
        "other/value": 2.0,  # of the first of its two instances
    }
    assert job.current_step == 1


def test_a_role_without_hooks_may_be_the_first(world: World) -> None:
    hooked = "from trainyard import hooks; hooks.init()"

    job_id = ended(world, role("main", "print('plain')"), role("other", hooked))

    assert lines_by_rank(world, job_id)[0] == ["plain"]


def test_a_script_that_does_not_exist_fails_before_any_rank_starts(world: World) -> None:
    missing = {"custom_script_path": str(world.directory / "mine" / "no.py")}
    job_id = submit(world, [role("first", "print('started')"), role("second", program=missing)])
    begin(world, job_id)

    job = world.wait_for_end(job_id)

    assert (job.state, job.error_type) == (JobState.FAILED, "INVALID_CONFIG")
    assert "no.py" in (job.error_message or "")
    assert world.log(job_id) == []


@pytest.mark.long
def test_processor_time_and_memory_are_known_for_each_instance(world: World) -> None:
    works = """
import time
kept = bytearray(b"x" * (64 << 20))
while time.process_time() < 2:
    pass
time.sleep(6)  # longer than between two samples
"""

    job_id = ended(world, role("busy", works), role("idle", "import time; time.sleep(120)", sidecar=True))

    busy, idle = world.attempt(job_id).instances or []
    assert busy["cpu_seconds"] >= 1.5
    assert busy["peak_memory_mb"] > 64
    assert idle["cpu_seconds"] < 1.5
    assert idle["peak_memory_mb"] < 64


@pytest.mark.long
def test_what_an_instance_uses_is_known_while_it_runs(world: World) -> None:
    waits = "kept = bytearray(b'x' * (64 << 20)); import time; time.sleep(120)"
    job_id = submit(world, [role("large", waits), role("small", "import time; time.sleep(120)")])
    begin(world, job_id)

    def used() -> list[float]:
        return [row["peak_memory_mb"] for row in world.attempt(job_id).instances or () if "peak_memory_mb" in row]

    world.wait(lambda: len(used()) == 2 and used()[0] > 64, 60, job_id)

    assert used()[1] < 64
    assert all("cpu_seconds" in row and "exit_code" not in row for row in world.attempt(job_id).instances or ())
    assert world.job(job_id).state is JobState.TRAINING
    world.request(job_id, "cancel")
    world.wait_for_end(job_id)


@pytest.fixture
def index() -> Iterator[Index]:
    with package_index() as found:
        found.add("greeting", "1.2.3")
        yield found


@pytest.mark.long
def test_a_role_has_packages_of_its_own(make_world: Callable[..., World], index: Index) -> None:
    world = make_world(TRAINYARD_FETCH_ALLOW="127.0.0.1")
    with world.db.write() as session:
        session.get_one(Node, NODE).capabilities = [PACKAGES]
    shows = "import importlib.util; print(importlib.util.find_spec('greeting') is not None)"
    packages = {"packages": {"index_url": index.url, "requirements": ["greeting"]}}

    job_id = ended(world, role("with", shows, program=packages), role("without", shows))

    assert lines_by_rank(world, job_id) == {0: ["True"], 1: ["False"]}
