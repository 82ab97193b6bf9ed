"""Which rank is to blame where mpirun ends all others once one has failed, also on other nodes."""

import pytest

from trainyard.protocol.message_parser import parse
from trainyard.protocol.messages import RankExit, fields_of
from workers.supervisor.ranks.observations import Observations
from workers.supervisor.ranks.verdict import is_consequence, judge

ENDED = RankExit(rank=0, exit_code=143, signal="SIGTERM", follows=True)
FAILED = RankExit(rank=1, exit_code=3, signal=None)
KILLED = RankExit(rank=1, exit_code=137, signal="SIGKILL")


def test_rank_that_failed_is_named_although_mpirun_ended_another_before():
    seen = Observations(custom=True, exits=[ENDED, FAILED], exit_code=143)

    assert judge(seen).message == "rank 1 ended with exit code 3"


def test_rank_that_mpirun_ended_has_no_cause_of_its_own():
    verdict = judge(Observations(custom=True, exits=[ENDED], exit_code=143))

    assert verdict.cause == "RANK_KILLED"
    assert verdict.message == "rank 0 was ended by mpirun because another rank had failed"


@pytest.mark.parametrize(("exits", "follows"), [([ENDED], True), ([ENDED, FAILED], False), ([ENDED, KILLED], False)])
def test_part_of_ranks_that_mpirun_ended_follows_another_part(exits, follows):
    seen = Observations(custom=True, exits=exits, exit_code=1)

    assert is_consequence(seen, judge(seen)) is follows


def test_agents_say_so_only_of_ranks_that_follow():
    assert "follows" not in fields_of(FAILED)
    assert parse({"type": "rank_exit", "rank": 0, **fields_of(ENDED)}) == ENDED
