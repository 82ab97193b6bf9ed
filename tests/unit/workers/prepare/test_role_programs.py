"""The instances of roles on a node with GPUs and CPU slots: which devices each sees, and how many threads it has."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.domain.scheduling.resources import Device
from app.domain.spec.locations.images import FIELD
from app.domain.spec.model import JobDocument
from app.domain.spec.role_documents import with_image_of
from app.services.attempts.role_rendezvous import InstancePlace
from app.services.attempts.work_instances import WorkInstance
from app.services.attempts.work_orders import WorkOrder
from app.services.requests.storage_access import reading_rules
from config.redaction import Redaction
from config.settings import Settings, load_settings
from tests.unit.workers.tracking.test_run_facts import work
from trainyard.protocol.role_instance import RoleInstance
from trainyard.protocol.run_spec import RunSpec
from workers.attempt_failed import AttemptFailed
from workers.images.image_config import ImageConfig
from workers.images.image_store import StoredImage
from workers.prepare.inputs.input_library import JobInputs, Library
from workers.prepare.job_image import JobImage, program_in, with_image
from workers.prepare.limits import reserved_cores
from workers.prepare.packages.job_packages import JobPackages
from workers.prepare.programs.roles import RolesHere, environment_of_role, with_roles
from workers.run_dir.layout import run_directory
from workers.sandbox.sandbox import ProcessGroup
from workers.sandbox.spec import ImageRoot
from workers.supervisor.rendezvous.role_places import places_of, tasks_of

GPUS = tuple(Device(index=n, type="h100", uuid=f"GPU-{n}") for n in (1, 2))
SLOT = Device(index=1000, type="cpu")
TASKS: list[dict[str, Any]] = [
    {"role": "trainer", "resource_config": {"gpu_count": 2}, "training_config": {"custom_command": ["train"]}},
    {
        "role": "helper",
        "resource_config": {"gpu_count": 1, "device_type": "cpu", "cpu_cores": 6},
        "training_config": {"custom_command": ["help"], "environment": {"A": "role", "B": "role"}},
        "restart": "task",
        "sidecar": True,
    },
]


def order(world: str = "role") -> WorkOrder:
    document = JobDocument.from_json(
        {
            "training_config": {"framework": {"type": "CUSTOM"}, "environment": {"A": "job"}, "max_retries": 2},
            "tasks": [{**task, "world": world} for task in TASKS],
        }
    )
    here: dict[str, Any] = {"node": "n", "part": 0, "index": 0}
    placed = (
        WorkInstance(role="trainer", devices=(1, 2), first_rank=0, ranks=2, **here),
        WorkInstance(role="helper", devices=(1000,), first_rank=2, ranks=3, **here),
    )
    return replace(work(), document=document, devices=(*GPUS, SLOT), all_instances=placed, threads_per_rank=4)


@pytest.fixture
def prepared(tmp_path: Path) -> RunSpec:
    return prepared_with(tmp_path)


def prepared_with(tmp_path: Path, world: str = "role") -> RunSpec:
    """The specification of the job's part here, with this world of both roles."""
    settings: Settings = load_settings({"TRAINYARD_DATA_DIR": str(tmp_path)})
    spec = RunSpec(run_dir=tmp_path, framework="CUSTOM", training_type="CUSTOM", world_size=5, threads_per_rank=4)
    library = Library(
        rules=reading_rules(settings), cache_dir=tmp_path, project="default", project_of_job=lambda _job: None
    )
    run = run_directory(tmp_path, "job-1", 1)
    here = RolesHere(settings, order(world), library, ProcessGroup(), run, Redaction(), JobImage(spec=spec))
    sources = JobInputs(model=None, tokenizer=None, data=(), script=None)
    return with_roles(JobPackages(spec=spec), here, sources, {}).spec


def test_each_instance_sees_its_own_gpus_and_the_sandbox_all_of_them(prepared: RunSpec) -> None:
    trainer, helper = prepared.instances

    assert (trainer.device_type, trainer.device_uuids) == ("cuda", ("GPU-1", "GPU-2"))
    assert (helper.device_type, helper.device_indices, helper.device_uuids) == ("cpu", (), ())
    assert (prepared.device_type, prepared.device_indices) == ("cuda", (1, 2))


def test_cores_are_shared_by_the_ranks_of_an_instance(prepared: RunSpec) -> None:
    trainer, helper = prepared.instances

    assert trainer.threads_per_rank == 4  # what its devices bring
    assert helper.threads_per_rank == 2  # of the cores it asks for


def test_cores_of_a_node_are_those_that_its_instances_reserve() -> None:
    both = order()
    trainer, helper = both.all_instances
    elsewhere = replace(trainer, node="other", part=1)
    helpers = (helper, replace(helper, index=1))

    assert reserved_cores(both) == 0  # the trainer reserves none, and may have any
    assert reserved_cores(replace(both, all_instances=(elsewhere, *helpers))) == 12
    assert reserved_cores(replace(both, part=1, all_instances=(elsewhere, *helpers))) == 0


def test_ranks_are_numbered_over_the_job_and_within_the_role(prepared: RunSpec) -> None:
    assert prepared.ranks == (0, 1, 2, 3, 4)
    assert [(each.first_rank, each.role_first_rank, each.role_world_size) for each in prepared.instances] == [
        (0, 0, 2),
        (2, 0, 3),
    ]
    assert [each.max_restarts for each in prepared.instances] == [0, 2]
    assert prepared.names == {0: "trainer 0", 1: "trainer 0", 2: "helper 0", 3: "helper 0", 4: "helper 0"}


def test_ranks_of_roles_with_the_jobs_world_are_counted_together(tmp_path: Path) -> None:
    trainer, helper = prepared_with(tmp_path, "job").instances

    assert [(each.role_first_rank, each.role_world_size, each.node_rank) for each in (trainer, helper)] == [
        (0, 5, 0),
        (2, 5, 1),
    ]
    assert {(each.nodes, each.leader, each.leader_index) for each in (trainer, helper)} == {(2, "trainer", 0)}


def test_an_instance_may_have_a_world_of_its_own(tmp_path: Path) -> None:
    _, helper = prepared_with(tmp_path, "instance").instances

    assert (helper.role_first_rank, helper.role_world_size, helper.node_rank, helper.nodes) == (0, 3, 0, 1)
    assert (helper.leader, helper.leader_index) == ("helper", 0)


def test_specification_is_the_same_after_it_was_stored(prepared: RunSpec) -> None:
    assert RunSpec.from_document(prepared.to_document()) == replace(prepared, sources=())


def test_specification_of_a_job_without_roles_does_not_name_them(tmp_path: Path) -> None:
    document = RunSpec(run_dir=tmp_path, framework="CUSTOM", training_type="").to_document()

    assert document.keys().isdisjoint({"instances", "tasks"})


def test_a_role_overrides_variables_of_the_job_even_secret_ones() -> None:
    secrets = {"training_config.environment.A": "sealed", "tasks.1.training_config.environment.B": "opened"}

    assert environment_of_role(order().document, 0, secrets) == {"A": "sealed"}
    assert environment_of_role(order().document, 1, secrets) == {"A": "role", "B": "opened"}


def test_places_have_ports_of_their_own_and_are_listed_by_index() -> None:
    ports = iter([1, 1, 2, 2, 3, 4])

    found = places_of(order(), "10.0.0.1", lambda _address: next(ports))

    assert [(each.port, each.rank_port) for each in found] == [(1, 2), (3, 4)]
    later = InstancePlace(role="trainer", index=1, address="10.0.0.2", port=9, rank_port=10)
    assert tasks_of([later, *found])["trainer"] == [
        {"index": 0, "address": "10.0.0.1", "port": 1},
        {"index": 1, "address": "10.0.0.2", "port": 9},
    ]


def test_unknown_keys_of_an_instance_are_ignored() -> None:
    given = {"role": "a", "index": 0, "count": 1, "first_rank": 0, "ranks": 1, "role_first_rank": 0}

    assert RoleInstance.from_document({**given, "role_world_size": 1, "new": True}).name == "a 0"


def test_errors_about_an_image_name_the_role_that_has_it(tmp_path: Path) -> None:
    settings, image = load_settings({"TRAINYARD_DATA_DIR": str(tmp_path)}), {"reference": "a.example/b:c"}
    library = Library(
        rules=reading_rules(settings), cache_dir=tmp_path, project="default", project_of_job=lambda _job: None
    )
    spec = RunSpec(run_dir=tmp_path, framework="CUSTOM", training_type="CUSTOM")
    tasks = [TASKS[0], {"role": "helper", "resource_config": {"image": image}}]
    document = with_image_of(JobDocument.from_json({"training_config": {}, "tasks": tasks}), {"helper"})

    with pytest.raises(AttemptFailed, match=r"INVALID_CONFIG: tasks\.1\.resource_config\.image\.reference: images are"):
        with_image(spec, document, settings, library, ProcessGroup())

    stored = StoredImage(root=tmp_path, config=ImageConfig(), digest="")
    here = JobImage(spec=spec, root=ImageRoot(directory=tmp_path), stored=stored, field=f"tasks.1.{FIELD}")
    with pytest.raises(
        AttemptFailed, match=r"tasks\.1\.resource_config\.image: .* set tasks\.1\.training_config\.custom"
    ):
        program_in(here, spec, document.training_config.framework)
