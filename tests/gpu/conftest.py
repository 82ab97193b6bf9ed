"""These tests train on a real NVIDIA GPU that nothing else uses meanwhile: `make test-gpu`."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gpu.driver import memory_used_mb
from tests.systems.installations import running_system
from tests.systems.system import System
from tests.trainers.in_process import make_assets
from workers.node.inventory import find_gpus

__all__ = ["shared_system"]

QUIET_MB = 100  # what the driver itself takes of some GPUs


@pytest.fixture(scope="module")
def shared_system(tmp_path_factory: pytest.TempPathFactory, owned_pids: set[int]) -> Iterator[System]:
    with running_system(tmp_path_factory.mktemp("shared"), owned_pids, "n1") as system:
        yield system


@pytest.fixture(scope="session", autouse=True)
def _a_free_gpu() -> None:
    if not find_gpus():
        pytest.exit("no NVIDIA GPU that NVML knows: these tests need one", returncode=1)
    if (used := memory_used_mb()) > QUIET_MB:
        pytest.exit(f"something else uses the first GPU: {used} MiB of its memory are taken", returncode=1)


@pytest.fixture(scope="module")
def demo(shared_system: System, demo_assets: Path) -> Path:
    """The demo's model and data, where jobs may read."""
    directory = shared_system.inputs / "demo"
    shutil.copytree(demo_assets, directory)
    return directory


@pytest.fixture(scope="session")
def with_dropout(tmp_path_factory: pytest.TempPathFactory, demo_assets: Path) -> Path:
    return make_assets(tmp_path_factory.mktemp("assets") / "demo", demo_assets)
