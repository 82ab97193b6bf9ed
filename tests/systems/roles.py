"""Jobs with roles in a world of real supervisors: submitted, placed, and read after their end."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from app.domain.lifecycle.events import EventType
from app.services.scheduling import planner
from app.storage.logs import LogReader
from config.settings import Settings
from tests.builders.factories import make_document, make_job
from tests.systems.supervising import World


def role(
    name: str,
    code: str = "",
    *,
    gpus: int = 1,
    cores: int = 0,
    program: Mapping[str, Any] | None = None,
    image: Mapping[str, Any] | None = None,
    **fields: Any,
) -> dict[str, Any]:
    """An entry of ``tasks`` whose instances run this Python code, or another program."""
    runs = {"custom_command": ["python3", "-c", code]} if code else {}
    amounts = {"cpu_cores": cores} if cores else {}
    return {
        "role": name,
        "resource_config": {"gpu_count": gpus, **amounts, **({"image": dict(image)} if image else {})},
        "training_config": {**runs, **(program or {})},
        **fields,
    }


def submit(
    world: World, tasks: Sequence[Mapping[str, Any]], interactive: Mapping[str, Any] | None = None, **training: Any
) -> str:
    """A job with these roles that waits to be placed; its id. ``interactive``: its interactive_config."""
    script = {"base_model": {"model_id": "none"}, "framework": {"type": "CUSTOM"}, "hyperparameters": {}}
    document = make_document(
        training_config={**script, **training},
        data_config={"sources": [{"path": str(world.directory / "mine/data.jsonl")}]},
    )
    document |= {"resource_config": {}, "tasks": list(tasks), "interactive_config": dict(interactive or {})}
    with world.db.write() as session:
        return make_job(session, document=document).id


def begin(world: World, job_id: str) -> None:
    """Place the job, and start its supervisors."""
    placed = planner.plan_once(world.db)
    assert placed, world.describe(job_id)
    for each in placed:
        assert world.start_supervisor(job_id, each.attempt, settings_of(world, each.node), each.node)


def settings_of(world: World, node: str) -> Settings:
    return replace(world.settings, node=replace(world.settings.node, name=node))


def lines_by_rank(world: World, job_id: str) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for line in LogReader(world.storage, job_id).read(live=False, limit=10_000):
        found.setdefault(line.rank, []).append(line.line)
    return found


def ends(world: World, job_id: str, attempt: int = 1) -> dict[str, int | None]:
    """Exit codes by instance."""
    instances = world.attempt(job_id, attempt).instances or []
    return {f"{each['role']} {each['index']}": each.get("exit_code") for each in instances}


def events_of(world: World, job_id: str, kind: EventType) -> list[str]:
    return [event.message for event in world.events(job_id) if event.type == kind]
