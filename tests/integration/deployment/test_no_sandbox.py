"""Machines without a sandbox: their nodes take no jobs and say why, jobs wait, and commands show the remedies."""

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.cli.local.sandbox import ensure_sandbox
from app.database.engine import Database
from app.domain.lifecycle.states import JobState
from app.domain.scheduling.resources import Device
from app.models import Job, Node
from app.services.nodes import registry
from app.services.nodes.registry import NodeReport
from app.services.operations.data_dir import write_sandbox
from app.services.operations.diagnosis.findings import Level
from app.services.operations.diagnosis.site import Site
from app.services.scheduling import planner
from tests.builders.factories import make_document, make_job, make_node
from tests.doubles.bubblewraps import put_forbidden_bubblewrap, put_program
from tests.systems.apps import Api
from tests.systems.commands import run_local
from tests.systems.examining import Alive, said
from tests.systems.supervising import NODE, World
from workers.node import worker_step as node_worker

DEVICES = (Device(index=0, type="cpu"), Device(index=1, type="cpu"))
MISSING = "has no sandbox for jobs: bubblewrap is not installed there"


def report(sandbox: str, name: str = "n1") -> NodeReport:
    return NodeReport(
        name=name, devices=DEVICES, cpu_cores=2, ram_mb=1, storage_mb=1, sandbox=sandbox, version="", boot_id="b"
    )


def test_jobs_wait_for_a_node_that_has_a_sandbox(api: Api) -> None:
    registry.register(api.db, report("missing"))

    job_id = api.data(api.post("/v1/jobs", make_document()), 201)["job_id"]
    with api.db.write() as session:
        waiting = make_job(session).id
    placed = planner.plan_once(api.db)

    assert placed == []
    assert api.get(f"/v1/jobs/{job_id}")["status"] == "PENDING", "it is accepted, although no node could take it now"
    assert f"0 on n1 ({MISSING})" in api.get(f"/v1/jobs/{waiting}")["pending_reason"]
    assert MISSING in str(api.get(f"/v1/nodes/n1/why/{waiting}")["filters"])
    assert api.get("/v1/cluster")["devices"][0]["free"] == 0
    assert api.get("/v1/nodes/n1")["sandbox"] == "missing"
    registry.register(api.db, report("bubblewrap"))
    assert [each.job_id for each in planner.plan_once(api.db)] == [waiting]
    assert api.get("/v1/cluster")["devices"][0]["total"] == 2


def test_a_node_without_a_sandbox_is_shown_with_the_remedies(db: Database) -> None:
    with db.write() as session:
        make_node(session, "n1", sandbox="forbidden")
        make_node(session, "n2", sandbox="below")

    shown = run_local("nodes", "show", "n2").stdout
    assert "n2 takes no jobs: it isolates jobs less than its operator demands" in shown
    assert "SANDBOX=process" not in shown, "what it demands would still not be there"
    for command in (["list"], ["show", "n1"]):
        output = run_local("nodes", *command).stdout
        assert "n1 takes no jobs: it has no sandbox for jobs: bubblewrap may not make namespaces there" in output
        assert "TRAINYARD_NODE_SANDBOX=process" in output


@pytest.mark.long
def test_the_doctor_fails_for_a_node_without_a_sandbox(site: Site) -> None:
    with site.db.write() as session:
        make_node(session, "n1", sandbox="missing")

    with Alive(site.db):
        (finding,) = said(replace(site, patience_seconds=3.0), "nodes")

    assert finding.level is Level.FAILED
    assert (finding.message, "apt install bubblewrap" in finding.fix) == (f"n1 accept no jobs: each {MISSING}", True)


def test_the_doctor_tells_that_the_risk_was_accepted(site: Site) -> None:
    write_sandbox(site.settings, without=True)
    (accepted,) = said(site, "sandbox")
    write_sandbox(site.settings, without=False)
    (again,) = said(site, "sandbox")

    assert accepted.level is Level.WARNING
    assert "`trainyard up --no-sandbox`" in accepted.message
    assert again.level is Level.OK


def test_a_node_worker_takes_jobs_as_soon_as_bubblewrap_is_installed(
    world: World, no_bubblewrap: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_worker, "SANDBOX_RECHECK_SECONDS", 0.0)
    bubblewrap = shutil.which("bwrap", path=os.defpath)
    assert bubblewrap is not None
    settings = replace(world.settings, node=replace(world.settings.node, name=NODE))
    worker = node_worker.NodeThreads(settings, world.db)

    def seen() -> str:
        worker._heartbeat()
        with world.db.read() as session:
            return session.get_one(Node, NODE).sandbox

    assert seen() == "missing"
    put_forbidden_bubblewrap(no_bubblewrap)
    assert seen() == "forbidden"
    (no_bubblewrap / "bwrap").unlink()
    put_program(no_bubblewrap, "bwrap", f'PATH={os.defpath} exec {bubblewrap} "$@"')
    assert seen() == "bubblewrap"


def seen_of(world: World, **settings: Any) -> str:
    """What a node with these settings reports, twice: its checks again change nothing."""
    worker = node_worker.NodeThreads(
        replace(world.settings, node=replace(world.settings.node, name=NODE, **settings)), world.db
    )
    found = []
    for _ in range(2):
        worker._heartbeat()
        with world.db.read() as session:
            found.append(session.get_one(Node, NODE).sandbox)
    assert found[0] == found[1]
    return found[0]


def test_node_below_what_its_operator_demands_takes_no_jobs_and_says_so(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(node_worker, "SANDBOX_RECHECK_SECONDS", 0.0)

    assert seen_of(world, sandbox_least=("sandbox:namespaces",)) == "bubblewrap"
    assert seen_of(world, sandbox_least=("sandbox:uid",), uids="") == "below"

    assert "a node offers sandbox:uid when its worker is root" in caplog.text
    with world.db.write() as session:
        waiting = make_job(session).id
    assert planner.plan_once(world.db) == []
    with world.db.read() as session:
        assert "(TRAINYARD_NODE_SANDBOX_LEAST)" in session.get_one(Job, waiting).pending_reason


def test_node_whose_gpus_can_not_be_told_apart_takes_no_jobs(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_worker, "lack_of_gpu_files", lambda _: "no file names them")
    monkeypatch.setattr(node_worker, "SANDBOX_RECHECK_SECONDS", 0.0)

    assert seen_of(world) == "undivided"
    assert seen_of(world, sandbox="process") == "process"


def test_an_attempt_does_not_start_where_the_sandbox_went_away(world: World, no_bubblewrap: Path) -> None:
    job_id = world.start("print('unconfined')\n")

    job = world.wait_for_end(job_id)

    assert (job.state, job.error_type) == (JobState.QUEUED, "INTERNAL")
    assert "this node can start no job: bubblewrap is not installed" in str(job.error_message)
    assert world.log(job_id) == []


@pytest.mark.parametrize("is_root", [True, False])
def test_bubblewrap_is_installed_for_root_of_a_debian_alone(
    no_bubblewrap: Path, monkeypatch: pytest.MonkeyPatch, *, is_root: bool
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0 if is_root else 1000)
    bubblewrap, calls, lines = shutil.which("bwrap", path=os.defpath), no_bubblewrap / "calls", list[str]()
    link = f"{shutil.which('ln', path=os.defpath)} -s {bubblewrap} {no_bubblewrap}/bwrap"
    put_program(no_bubblewrap, "apt-get", f'echo "$@" >> {calls}; case "$*" in *install*) {link};; esac')
    put_program(no_bubblewrap, "true", "exit 0")

    lack = ensure_sandbox(lines.append)

    assert (lack is None, bool(lines), calls.exists()) == (is_root, is_root, is_root)
    assert lack is None or str(lack) == "bubblewrap is not installed"
