"""Which rank speaks for a role."""

from tests.unit.workers.prepare.test_role_programs import order
from workers.supervisor.ranks.role_progress import NoRoles, RoleProgress


def test_the_first_rank_of_a_role_leads_it_whatever_a_message_claims() -> None:
    roles = RoleProgress(
        None,  # type: ignore[arg-type]  # nothing is written
        order(),
        send=lambda _: None,
        note=lambda _: None,
        on_restart=lambda _: None,
        on_leader_left=lambda: None,
        grace_seconds=1,
    )

    assert [roles.led_by(rank) for rank in range(5)] == [None, None, "helper", None, None]
    claims: list[object] = [[], {}, "2", None, 2.5]
    assert [roles.led_by(claimed) for claimed in claims] == [None] * 5
    assert NoRoles().led_by(2) is None
