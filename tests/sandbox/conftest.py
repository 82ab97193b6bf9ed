"""Machines that are attacked, and what the probes said of them: one installation for each user of a node's worker."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from app.host.overlays import lack_of_overlays
from tests.sandbox.canaries import canaries
from tests.sandbox.control import Report, on_reached_network, without_sandbox
from tests.sandbox.expectations import NUMBERS, ON_A_NETWORK
from tests.sandbox.jobs import Attacked, attack, other_jobs, targets_on
from tests.sandbox.machines import make_image, namespaces_lack, running
from workers.sandbox.control_groups import CONTROLLERS, find_hierarchies

# No user of a system, and none that systemd gives out.
ORDINARY = 60990


@contextmanager
def attacked(user: int, owned_pids: set[int]) -> Iterator[Attacked]:
    if os.geteuid() != 0:
        pytest.skip("only root can make files and processes of other users, which no job may reach")
    with ExitStack() as stack:
        outside = stack.enter_context(canaries(user, owned_pids))
        machine = stack.enter_context(running(outside, owned_pids))
        yield Attacked(machine, outside, stack.enter_context(other_jobs(machine)))


@pytest.fixture(scope="module")
def of_root(owned_pids: set[int]) -> Iterator[Attacked]:
    if os.geteuid() == 0 and set(find_hierarchies().parents) != set(CONTROLLERS):
        pytest.skip("root can make no control groups here, as in a container that has them read-only")
    with attacked(0, owned_pids) as found:
        yield found


@pytest.fixture(scope="module")
def full(of_root: Attacked, run_directory: Path) -> Report:
    return attack(of_root, run_directory)


@pytest.fixture(scope="module")
def image(of_root: Attacked, run_directory: Path) -> Report:
    if lack := lack_of_overlays(of_root.machine.folder):
        pytest.skip(f"the kernel mounts no overlay: {lack}")
    return attack(of_root, run_directory, image=make_image(of_root.machine.inputs / "image"))


@pytest.fixture(scope="module")
def namespaces(owned_pids: set[int], run_directory: Path) -> Iterator[Report]:
    if os.geteuid() == 0 and (lack := namespaces_lack(ORDINARY)):
        pytest.skip(f"ordinary users can make no namespaces here: {lack}")
    with attacked(ORDINARY, owned_pids) as found:
        yield attack(found, run_directory)


@pytest.fixture(scope="module")
def control(of_root: Attacked, tmp_path_factory: pytest.TempPathFactory) -> Report:
    """What the probes reach as processes of root, without a sandbox."""
    targets = targets_on(of_root)
    here = ",".join(str(number) for number in NUMBERS if number not in ON_A_NETWORK)
    secrets = {"SOME_PASSWORD": of_root.canaries.marker}
    reached = without_sandbox(tmp_path_factory.mktemp("control"), targets, here, secrets)
    folder = tmp_path_factory.mktemp("network")
    return reached | on_reached_network(folder, targets, ",".join(map(str, ON_A_NETWORK)))
