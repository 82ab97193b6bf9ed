"""A new volume claim of Run:ai: one workload writes into it, and the next one reads it."""

from typing import Any

import pytest

from tests.systems.system import System

CLUSTER = "71f69d83-ba66-4822-adf5-55ce55efd210"


def printed(system: System, name: str, command: str, **volume: Any) -> list[str]:
    """What a training prints that completes."""
    spec = {"command": f"sh -c '{command}'", "storage": {"pvc": [{"path": "/team", **volume}]}}
    body = {"name": name, "projectId": "default", "clusterId": CLUSTER, "spec": spec}
    status, answer = system.call("POST", "/api/v1/workloads/trainings", body)
    assert status == 202, answer
    job_id = f"job-{answer['workloadId']}"
    system.wait_for_status(job_id, "COMPLETED", seconds=60)
    return system.log_lines(job_id)


@pytest.mark.long
def test_workload_writes_into_a_new_claim_that_another_reads(shared_system: System) -> None:
    claim = shared_system.data_dir / "files" / "pvc" / "default" / "claims-of-e2e"

    written = printed(shared_system, "first", "echo one > /team/file && ls /team", claimName=claim.name)
    again = printed(shared_system, "second", "echo two >> /team/file && cat /team/file", claimName=claim.name)
    read = printed(
        shared_system,
        "third",
        "cat /team/file; echo three > /team/file || echo refused",
        existingPvc=True,
        claimName=claim.name,
        readOnly=True,
    )

    assert (written, again, read[:2], read[-1]) == (["file"], ["one", "two"], ["one", "two"], "refused")
    assert (claim / "file").read_text() == "one\ntwo\n"
    ephemeral = printed(shared_system, "fourth", "ls /team; echo x > /team/x", claimName=claim.name, ephemeral=True)
    assert (ephemeral, [path.name for path in claim.iterdir()]) == ([], ["file"])
