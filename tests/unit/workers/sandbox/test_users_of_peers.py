"""Users of parts of one attempt on the same machine stay reserved while rules of another part let them in."""

import os
from pathlib import Path

import pytest

from app.host.own_users import lack_of_own_users
from workers.sandbox.own_user import NoFreeUser, take_user

FIRST = 1_600_000 + os.getpid() % 100_000 * 8  # processes of other tests at the same time have other users
UIDS = range(FIRST, FIRST + 3)
pytestmark = pytest.mark.skipif(
    bool(lack := lack_of_own_users(f"{UIDS[0]}-{UIDS[-1]}", Path("/tmp"))),
    reason=f"here no attempt has a user of its own: {lack}",
)


def test_user_of_a_part_that_has_ended_stays_reserved_for_those_that_let_it_in(tmp_path: Path) -> None:
    locks = tmp_path / "locks"
    first, second = (take_user(UIDS, locks=locks) for _ in range(2))
    second.reserve_peers({first.uid, second.uid}, locks=locks)
    held = list(Path("/proc/self/fd").iterdir())
    second.reserve_peers({first.uid, second.uid}, locks=locks)  # as when its rules are tried again
    assert len(list(Path("/proc/self/fd").iterdir())) == len(held)
    first.release()

    other = take_user(UIDS, locks=locks)
    with pytest.raises(NoFreeUser):
        take_user(UIDS, locks=locks)
    second.release()
    again = take_user(UIDS, locks=locks)

    assert other.uid == UIDS[2]
    assert again.uid == UIDS[0]
    for user in (other, again):
        user.release()
