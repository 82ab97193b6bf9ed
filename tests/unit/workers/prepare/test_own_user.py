"""Which attempts have a user of the machine of their own, and what a job that requires one meets elsewhere."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.domain.spec.model import JobDocument
from app.host.own_users import lack_of_own_users, record_verdict
from config.settings import Settings, load_settings
from workers.attempt_failed import AttemptFailed
from workers.prepare.own_user import own_user_of
from workers.sandbox.own_user import OwnUser
from workers.sandbox.sandbox import Bubblewrap, ProcessGroup, Sandbox
from workers.sandbox.spec import FilesystemView

UIDS = "720000-720001"
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
        settings: Settings = load_settings({"TRAINYARD_NODE_UIDS": uids})
        view = FilesystemView(run_dir=self.run_dir, data_dir=self.data_dir, readable=readable)
        found = own_user_of(settings, document(requires=requires), view, sandbox or Bubblewrap())
        if found is not None:
            self.taken.append(found)
        return found is not None


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    found = Node(tmp_path)
    yield found
    for user in found.taken:
        user.release(ended=True)


def document(*, requires: bool) -> JobDocument:
    return JobDocument.from_json({"scheduling_config": {"required_capabilities": ["sandbox:uid"] if requires else []}})


def test_attempt_has_a_user_of_its_own(node: Node) -> None:
    assert node.user(requires=True)


def test_attempt_has_the_workers_user_where_the_operator_says_so(node: Node) -> None:
    assert not node.user(uids="")
    assert not node.user(sandbox=ProcessGroup())


def test_attempt_has_the_workers_user_where_the_node_worker_could_not_give_others(node: Node) -> None:
    record_verdict(node.data_dir, "the kernel has no such call")

    assert not node.user()
    with pytest.raises(AttemptFailed, match=r"sandbox:uid.*the kernel has no such call"):
        node.user(requires=True)


def test_input_that_can_not_be_mapped_is_shown_if_all_may_read_it(node: Node) -> None:
    assert node.user(Path("/proc/sys/kernel/ostype"), requires=True)
    assert not node.user(Path("/proc/1/environ"))
    with pytest.raises(AttemptFailed, match=r"/proc/1/environ can't be mapped"):
        node.user(Path("/proc/1/environ"), requires=True)


def test_attempt_fails_where_others_have_all_users(node: Node) -> None:
    assert node.user()
    assert node.user()

    with pytest.raises(AttemptFailed, match=r"TRAINYARD_NODE_UIDS; name a larger range"):
        node.user()
    node.taken.pop().release(ended=True)
    assert node.user()
