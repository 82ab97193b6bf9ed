"""Namespaces of mounts that the worker holds for attempts."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.host import idmapped_mounts
from app.host.own_users import lack_of_own_users


@pytest.fixture(scope="module", autouse=True)
def _mounts() -> None:
    if lack := lack_of_own_users("700000-765535", Path("/tmp")):
        pytest.skip(f"here no mounts can be made: {lack}")


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Path]:
    """A directory whose mounts other namespaces see, as on machines with systemd."""
    top = tmp_path / "shared"
    top.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "none", top], check=True)
    subprocess.run(["mount", "--make-shared", top], check=True)
    yield top
    subprocess.run(["umount", "-R", top], check=True)


def is_mounted(namespace: int, path: Path) -> bool:
    inside = ["nsenter", f"--mount=/proc/{os.getpid()}/fd/{namespace}", "mountpoint", "-q", str(path)]
    return subprocess.run(inside, check=False).returncode == 0


def test_what_the_machine_unmounts_is_not_held(shared: Path) -> None:
    disk = shared / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "none", disk], check=True)
    namespace = idmapped_mounts.mount_namespace(lambda: None)
    try:
        before = is_mounted(namespace, disk)
        subprocess.run(["umount", disk], check=True)

        assert (before, is_mounted(namespace, disk)) == (True, False)
    finally:
        os.close(namespace)


def test_what_is_mounted_in_a_namespace_is_not_on_the_machine(shared: Path) -> None:
    (shared / "new").mkdir()

    namespace = idmapped_mounts.mount_namespace(lambda: idmapped_mounts.mount("tmpfs", shared / "new", "mode=755"))

    try:
        assert is_mounted(namespace, shared / "new")
        assert not (shared / "new").is_mount()
    finally:
        os.close(namespace)
