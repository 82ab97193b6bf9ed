"""Which attempts have a host user of their own, and what a job that requires one meets elsewhere."""

import logging
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from app.host.own_users import lack_of_own_users, record_verdict
from config.settings import Settings, load_settings
from workers.attempt_failed import AttemptFailed
from workers.prepare.own_user import borrowed_user, own_user_of
from workers.sandbox.own_user import OwnUser, take_user
from workers.sandbox.sandbox import Bubblewrap, ProcessGroup, Sandbox
from workers.sandbox.spec import FilesystemView

FIRST = 1_600_000 + os.getpid() % 100_000 * 8  # other tests at the same time have other users
UIDS = f"{FIRST}-{FIRST + 1}"
pytestmark = pytest.mark.skipif(
    bool(lack := lack_of_own_users(UIDS, Path("/tmp"))), reason=f"here no attempt has a user of its own: {lack}"
)


class Node:
    def __init__(self, folder: Path) -> None:
        self.data_dir = folder / "data"
        self.run_dir = self.data_dir / "run" / "jobs" / "job-1" / "1"
        self.run_dir.mkdir(parents=True)
        self.taken: list[OwnUser] = []
        record_verdict(self.data_dir, "")

    def user(self, *readable: Path, requires: bool = False, sandbox: Sandbox | None = None, uids: str = UIDS) -> bool:
        """Whether an attempt with these inputs gets one."""
        required = {"sandbox:uid"} if requires else set()
        found = own_user_of(settings_of(uids), self.view(*readable), sandbox or Bubblewrap(), required)
        if found is not None:
            self.taken.append(found)
        return found is not None

    def view(self, *readable: Path) -> FilesystemView:
        return FilesystemView(run_dir=self.run_dir, data_dir=self.data_dir, readable=readable)


def settings_of(uids: str) -> Settings:
    return load_settings({"TRAINYARD_NODE_UIDS": uids})


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    monkeypatch.setattr("workers.prepare.own_user.take_user", partial(take_user, locks=tmp_path / "locks"))
    found = Node(tmp_path)
    yield found
    for user in found.taken:
        user.release()


def test_attempt_has_a_user_of_its_own(node: Node) -> None:
    assert node.user(requires=True)


def test_attempt_has_the_workers_user_where_the_operator_says_so(node: Node) -> None:
    assert not node.user(uids="")
    assert not node.user(sandbox=ProcessGroup())
    with pytest.raises(AttemptFailed, match=r"sandbox:uid.*without a sandbox of namespaces"):
        node.user(requires=True, sandbox=ProcessGroup())


def test_attempt_has_the_workers_user_where_the_node_worker_could_not_give_others(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    record_verdict(node.data_dir, "the kernel has no such call")

    with caplog.at_level(logging.WARNING):
        assert not node.user()
    assert caplog.messages == ["processes of a job have the worker's user: the kernel has no such call"]
    with pytest.raises(AttemptFailed, match=r"sandbox:uid.*the kernel has no such call") as failed:
        node.user(requires=True)
    assert failed.value.error_type == "INTERNAL"


def test_what_the_operator_wants_is_no_warning(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert not node.user(uids="")
        assert not node.user(sandbox=ProcessGroup())
    assert caplog.messages == []


def test_input_that_can_not_be_mapped_is_shown_if_all_may_read_it(node: Node) -> None:
    assert node.user(Path("/proc/sys/kernel/ostype"), requires=True)
    assert not node.user(Path("/proc/1/environ"))
    with pytest.raises(AttemptFailed, match=r"/proc/1/environ can't be mapped") as failed:
        node.user(Path("/proc/1/environ"), requires=True)
    assert failed.value.error_type == "INVALID_CONFIG", "another node or another try would not help"


def test_modes_of_an_input_that_can_not_be_mapped_are_not_believed(node: Node) -> None:
    maps = Path("/proc/1/maps")  # not for other users, whatever the mode says

    assert maps.stat().st_mode & 0o004
    assert not node.user(maps)


def test_preflight_has_the_workers_user_where_attempts_have_all(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    assert node.user()
    with borrowed_user(settings_of(UIDS), node.view(), Bubblewrap()) as user:
        assert user is not None
    assert node.user()
    with caplog.at_level(logging.WARNING), borrowed_user(settings_of(UIDS), node.view(), Bubblewrap()) as user:
        assert user is None
    assert "a preflight has the worker's user" in caplog.text


def test_attempt_fails_where_others_have_all_users(node: Node) -> None:
    assert node.user()
    assert node.user()

    with pytest.raises(AttemptFailed, match=r"TRAINYARD_NODE_UIDS; name a larger range"):
        node.user()
    node.taken.pop().release()
    assert node.user()
