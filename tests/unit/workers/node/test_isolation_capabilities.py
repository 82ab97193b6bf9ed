"""What a node offers by its sandbox and its control groups."""

from functools import partial
from pathlib import Path

import pytest

from app.host.gpu_devices import GpuDevice, UnknownGpuFiles, closed_gpu_files, gpu_files
from app.host.landlock import lack_of_landlock
from app.host.own_users import lack_of_users
from workers.node.inventory import found_capabilities
from workers.sandbox.control_groups import CONTROLLERS, Hierarchies
from workers.sandbox.sandbox import PROCESS


@pytest.mark.parametrize(("controllers", "offers"), [(CONTROLLERS, True), (("pids",), False), ((), False)])
def test_node_offers_limits_where_it_can_hold_all_of_them(tmp_path, monkeypatch, controllers, offers):
    found = Hierarchies(dict.fromkeys(controllers, tmp_path), 1)
    monkeypatch.setattr("workers.node.inventory.find_hierarchies", lambda: found)

    assert ("limits" in found_capabilities(PROCESS, tmp_path)) is offers


@pytest.mark.parametrize(
    ("sandbox", "controllers", "offered"),
    [
        ("auto", CONTROLLERS, ["sandbox:full", "sandbox:namespaces", "sandbox:network"]),
        ("bubblewrap", ("memory",), ["sandbox:namespaces", "sandbox:network"]),
        (PROCESS, CONTROLLERS, []),
    ],
)
def test_node_offers_the_isolation_that_it_has_and_each_weaker_one(
    tmp_path, monkeypatch, sandbox, controllers, offered
):
    found = Hierarchies(dict.fromkeys(controllers, tmp_path), 1)
    monkeypatch.setattr("workers.node.inventory.find_hierarchies", lambda: found)
    monkeypatch.setattr("workers.node.inventory._has_landlock", lambda: False)
    monkeypatch.setattr("workers.node.inventory.lack_of_guards", lambda _: "none")

    assert [name for name in found_capabilities(sandbox, tmp_path) if name.startswith("sandbox:")] == offered


@pytest.mark.parametrize(
    ("sandbox", "lack", "offers"), [("auto", "", True), ("auto", "no such call", False), (PROCESS, "", False)]
)
def test_node_offers_users_where_a_sandbox_can_have_them(tmp_path, monkeypatch, sandbox, lack, offers):
    monkeypatch.setattr("app.host.own_users.lack_of_own_users", lambda *_: lack)

    assert ("sandbox:uid" in found_capabilities(sandbox, tmp_path, uids="700000-700009")) is offers


def test_node_whose_gpus_are_closed_to_other_users_offers_none(tmp_path, monkeypatch):
    monkeypatch.setattr("app.host.own_users.lack_of_own_users", lambda *_: "")
    monkeypatch.setattr("app.host.own_users.closed_gpu_files", lambda: [Path("/dev/nvidia0")])

    assert "sandbox:uid" not in found_capabilities("auto", tmp_path, uids="700000-700009")
    assert lack_of_users("700000-700009", tmp_path) == "not all users may use /dev/nvidia0"


def test_gpus_that_the_driver_does_not_tell_apart_do_not_end_a_worker_that_starts(tmp_path, monkeypatch):
    for name in ("nvidia0", "nvidia1"):
        (tmp_path / name).touch()
    unread = [GpuDevice(minor, "GPU-????????-????-????-????-????????????") for minor in (0, 1)]
    monkeypatch.setattr("app.host.gpu_devices.driver_gpus", lambda **_: unread)
    monkeypatch.setattr("app.host.own_users.lack_of_own_users", lambda *_: "")
    monkeypatch.setattr("app.host.own_users.closed_gpu_files", partial(closed_gpu_files, dev=tmp_path))

    with pytest.raises(UnknownGpuFiles):
        gpu_files([0, 1], dev=tmp_path)
    assert "sandbox:uid" in found_capabilities("auto", tmp_path, uids="700000-700009")


@pytest.mark.parametrize(
    ("users", "guards", "network", "offers"),
    [("", "", "none", True), ("none", "", "none", False), ("", "none", "none", False), ("", "", "host", False)],
)
def test_node_offers_ports_for_an_attempt_alone_where_it_keeps_others_out(
    tmp_path, monkeypatch, users, guards, network, offers
):
    monkeypatch.setattr("workers.node.inventory.lack_of_users", lambda *_: users)
    monkeypatch.setattr("workers.node.inventory.lack_of_guards", lambda _: guards)

    assert ("sandbox:peers" in found_capabilities("auto", tmp_path, uids="7000-7009", network=network)) is offers


@pytest.mark.parametrize(
    ("sandbox", "lack", "offers"), [("auto", "", True), ("auto", "none", False), (PROCESS, "", False)]
)
def test_node_offers_parts_of_claims_where_it_has_mounted_one(tmp_path, monkeypatch, sandbox, lack, offers):
    monkeypatch.setattr("workers.node.inventory.lack_of_claim_parts", lambda _: lack)

    assert ("mounts:parts" in found_capabilities(sandbox, tmp_path)) is offers
    monkeypatch.setattr("workers.node.inventory.lack_of_users", lambda *_: "")  # who have tried it then
    assert ("mounts:parts" in found_capabilities(sandbox, tmp_path)) is (sandbox != PROCESS)


@pytest.mark.parametrize("sandbox", ["auto", PROCESS])
def test_node_offers_a_second_lock_where_its_kernel_has_one(tmp_path, sandbox):
    offers = sandbox != PROCESS and lack_of_landlock(in_sandbox=True) is None

    assert ("sandbox:locked" in found_capabilities(sandbox, tmp_path)) is offers


@pytest.mark.parametrize(
    ("sandbox", "network", "offers"), [("auto", "none", True), ("auto", "host", False), (PROCESS, "none", False)]
)
def test_node_offers_a_network_of_its_own_where_jobs_have_one(tmp_path, sandbox, network, offers):
    assert ("sandbox:network" in found_capabilities(sandbox, tmp_path, network=network)) is offers
