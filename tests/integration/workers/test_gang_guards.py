"""Ranks on two nodes meet in the machine's network, where a job of another project connects to them."""

import fcntl
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.domain.lifecycle.states import JobState
from app.host.guarded_ports import guarded_users, lack_of_guards
from app.host.own_users import LOCKS, lack_of_own_users, record_verdict
from app.models import Attempt, Job, Node
from app.services.scheduling import planner
from tests.builders.factories import make_node, make_project
from tests.systems.supervising import World

UIDS = "2910000-2910007"
OTHER = "other"
# Rank 0 listens where the ranks meet, and at a port that it chooses itself, as gloo does.
MEETS = """
import os, socket, time
place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if os.environ["RANK"] == "0":
    with socket.create_server(place) as server, socket.create_server((place[0], 0)) as own:
        connection, _ = server.accept()
        connection.sendall(b"%d" % own.getsockname()[1])
        own.accept()
        try:
            socket.create_connection(("127.0.0.1", SERVICE), timeout=0.5)
        except TimeoutError:
            print("no service", flush=True)
        print("ports", place[1], own.getsockname()[1], flush=True)
        time.sleep(120)
for _ in range(200):
    try:
        connection = socket.create_connection(place)
        break
    except ConnectionRefusedError:
        time.sleep(0.05)
socket.create_connection((place[0], int(connection.recv(16))), timeout=30)
time.sleep(120)
"""
ATTACKS = """
import socket
for port, seconds in ((PORTS)):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=seconds)
        print("connected", flush=True)
    except OSError as error:
        print(type(error).__name__, flush=True)
"""


@pytest.fixture
def world(make_world, tmp_path: Path) -> World:
    if lack := lack_of_own_users(UIDS, tmp_path / "tried") or lack_of_guards(UIDS):
        pytest.skip(f"here no ports are guarded: {lack}")
    made: World = make_world(TRAINYARD_NODE_UIDS=UIDS, TRAINYARD_NODE_ADDRESS="127.0.0.1")
    record_verdict(made.data_dir, "")
    with made.db.write() as session:
        make_node(session, OTHER, devices=4)
        for node in session.query(Node):
            node.capabilities = ["sandbox:peers"]
        make_project(session, "strangers")
    return made


def start(world: World, script: str, demands: tuple[str, ...] = (), **columns: Any) -> str:
    """One rank on each of two nodes, which are this machine."""
    resources = {"gpu_count": 1, "node_count": 2, "device_type": "cpu"}
    document = {"scheduling_config": {"required_capabilities": [*demands]}}
    job_id = world.submit(script, resources=resources, document=document, **columns)
    with world.db.write() as session:
        session.get_one(Job, job_id).status = JobState.QUEUED
    for placed in planner.plan_once(world.db):
        settings = replace(world.settings, node=replace(world.settings.node, name=placed.node))
        assert world.start_supervisor(job_id, placed.attempt, settings, placed.node)
    return job_id


def is_reserved_by_peers(uid: int) -> bool:
    with (LOCKS / f"{uid}.peers").open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


@pytest.mark.long
def test_job_of_another_project_reaches_no_port_of_the_ranks(world: World) -> None:
    with socket.create_server(("127.0.0.1", 0)) as service:
        script = MEETS.replace("SERVICE", str(service.getsockname()[1]))
        job_id = start(world, script, demands=("sandbox:peers",))
        world.wait(lambda: any(line.startswith("ports") for line in world.log(job_id)), 40.0, job_id)
    assert "no service" in world.log(job_id)  # as it demands to be alone
    _, known, own = next(line for line in world.log(job_id) if line.startswith("ports")).split()
    with world.db.read() as session:
        told = session.get_one(Attempt, (job_id, 1)).rendezvous or {}
    uids = {machine["uid"] for machine in told["machines"].values()}
    assert len(uids) == 2
    assert uids <= {*guarded_users()}
    assert all(map(is_reserved_by_peers, uids))  # should one part end before the other

    attack = start(world, ATTACKS.replace("(PORTS)", f"({known}, 30.0), ({own}, 0.5)"), project="strangers")

    assert world.wait_for_end(attack).state is JobState.COMPLETED, world.describe(attack)
    found = world.log(attack)
    assert len(found) == 4
    assert set(found) <= {"ConnectionRefusedError", "TimeoutError"}
    assert found.count("ConnectionRefusedError") >= 2  # those at the known port
    world.request(job_id, "cancel")
    assert world.wait_for_end(job_id).state is JobState.CANCELLED
    world.wait(lambda: not uids & {*guarded_users()}, 10.0, job_id)
    world.wait(lambda: not any(map(is_reserved_by_peers, uids)), 10.0, job_id)
