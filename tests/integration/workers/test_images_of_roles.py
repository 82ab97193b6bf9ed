"""Roles with container images of their own, under real supervisors: each image is on nodes of its own."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.domain.lifecycle.events import EventType
from app.domain.lifecycle.states import JobState
from app.host.overlays import lack_of_overlays
from app.models import Node
from tests.builders.factories import make_node
from tests.systems import images
from tests.systems.roles import begin, events_of, lines_by_rank, role, submit
from tests.systems.supervising import NODE, World

pytestmark = pytest.mark.long


def local(world: World, name: str, *layers: Any, **config: Any) -> str:
    """A reference to a new image in the storage root."""
    images.make_image(world.directory / "mine" / name, *layers, **config)
    return f"oci:{world.directory}/mine/{name}:v1"


def test_roles_with_other_images_run_on_other_nodes(make_world: Callable[..., World], tmp_path: Path) -> None:
    if lack := lack_of_overlays(tmp_path):
        pytest.skip(f"the kernel mounts no overlay for this user: {lack}")
    world = make_world()
    with world.db.write() as session:
        make_node(session, "other", devices=4, capabilities=["images"])
        session.get_one(Node, NODE).capabilities = ["images"]
    tool = local(world, "tool", [("etc", None), ("etc/tool", b"tool")], Entrypoint=["sh", "-c"], Cmd=["cat /etc/tool"])
    other = local(world, "other", [("etc", None), ("etc/other", b"other"), ("srv", None)], WorkingDir="/srv")
    job_id = submit(
        world,
        [
            role("own", image={"reference": tool}),
            role("named", image={"reference": other}, program={"custom_command": ["sh", "-c", "pwd; ls /etc/other"]}),
            role("beside", image={"reference": tool}, program={"custom_command": ["sh", "-c", "ls /etc/tool"]}),
        ],
    )
    begin(world, job_id)

    assert world.wait_for_end(job_id).state is JobState.COMPLETED, world.describe(job_id)

    assert lines_by_rank(world, job_id) == {0: ["tool"], 1: ["/srv", "/etc/other"], 2: ["/etc/tool"]}
    instances = {each["role"]: each["node"] for each in world.attempt(job_id).instances or []}
    assert instances["own"] == instances["beside"] != instances["named"]
    assert [event.partition(" is the image")[0] for event in events_of(world, job_id, EventType.IMAGE)] == [tool, other]
