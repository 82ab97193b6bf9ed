"""In which order a supervisor does what must not go wrong, with doubles for the parts that would take minutes."""

import os
import signal
import socket
import threading
import time
from dataclasses import replace

import pytest

from app.models import Attempt, Lease, NodeFault
from app.services.attempts import work_orders
from app.services.attempts.leases import ControlRequests
from tests.builders.factories import make_attempt, make_job, make_node
from tests.doubles.supervisor_doubles import (
    Agent,
    EndedAgent,
    Part,
    StuckStorage,
    WithDoubles,
    WithRealRanks,
    WithStuckCheckpoints,
    prepared,
)
from tests.systems.supervising import World
from trainyard.protocol.channel import encode, short_address
from trainyard.protocol.messages import Hello, PauseFailed, RankExit, Result, fields_of
from workers.supervisor.control.hang_detector import Hang
from workers.supervisor.control.hang_report import without_stacks
from workers.supervisor.control.stop_controller import (
    ANSWER_SECONDS,
    PAUSE_SAVE_SECONDS,
    PREEMPT_SAVE_SECONDS,
    REQUEUE_SAVE_SECONDS,
    UNSAVED_STOP_SECONDS,
    StopController,
)
from workers.supervisor.main import Supervisor
from workers.supervisor.ranks.event_loop import EventLoop
from workers.supervisor.ranks.observations import TIME_LIMIT, Observations
from workers.supervisor.ranks.oom_kills import RecentKills
from workers.supervisor.ranks.verdict import judge


@pytest.fixture
def _own_signals():
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def part():
    return Part()


@pytest.fixture
def assemble(world: World, part, _own_signals):
    """Parts of an attempt's supervisor, by the class that makes them."""
    with world.db.write() as session:
        job = make_job(session)
        make_attempt(session, job, make_node(session, "n"))
        job_id = job.id
    work = work_orders.load_work(world.db, job_id, 1)
    return lambda kind=WithDoubles: kind(world.settings, world.db, work, time.monotonic(), part=part)


@pytest.fixture
def stops(part):
    """A controller of stops, what it goes by, and its loop."""
    loop, observations = EventLoop(), Observations(custom=False)

    def withdraw(_why, _done):
        part.calls.append("the pause is withdrawn")

    yield StopController(loop, observations, part, grace_seconds=1.0, withdraw=withdraw), observations, loop
    loop.close()


def test_ranks_are_dead_before_renewal_and_fence_end_whatever_was_raised(assemble, part):
    supervisor = Supervisor(assemble())

    with pytest.raises(RuntimeError, match="a fault of ours"):
        supervisor.run()

    assert part.calls == ["renewal starts", "ranks are dead", "renewal stops"]


@pytest.mark.parametrize(
    ("request_", "seconds"),
    [("requeue", REQUEUE_SAVE_SECONDS), ("preempt", PREEMPT_SAVE_SECONDS), ("pause", PAUSE_SAVE_SECONDS)],
)
def test_ranks_that_never_stop_are_ended_after_a_bounded_time(stops, part, request_, seconds):
    controller, _, loop = stops

    controller.stop(request_, save=True, force=True)

    ((due, _, end),) = loop._timers
    assert due - time.monotonic() == pytest.approx(seconds, abs=1)
    end()
    assert part.calls == [f"ranks are asked to {request_}", "ranks are terminated"]


@pytest.mark.parametrize("request_", ["pause", "requeue", "preempt"])
def test_ranks_that_store_shards_are_ended_soon_and_the_stop_is_carried_out(stops, part, request_):
    controller, observations, loop = stops
    observations.can_save = False

    controller.stop(request_)

    ((due, _, end),) = loop._timers
    assert due - time.monotonic() == pytest.approx(UNSAVED_STOP_SECONDS, abs=1)
    end()
    assert part.calls == [f"ranks are asked to {request_}", "ranks are terminated"]
    observations.exit_code, observations.terminated = -9, True
    outcome = judge(observations)
    expected = {"pause": "paused", "requeue": "requeued", "preempt": "preempted"}
    assert outcome.kind == expected[request_]


@pytest.mark.parametrize(("request_", "seconds"), ANSWER_SECONDS.items())
def test_replica_finishes_its_answers_within_a_bounded_time(stops, part, request_, seconds):
    controller, observations, loop = stops
    observations.serves, observations.answers, observations.can_save = True, True, False

    controller.apply(ControlRequests(requested=request_, pause_saves=True, checkpoint_requests=0))

    ((due, _, end),) = loop._timers
    assert due - time.monotonic() == pytest.approx(seconds, abs=1)
    end()
    assert part.calls == [f"ranks are asked to {request_}", "ranks are terminated"]


def test_replica_at_the_end_of_its_time_finishes_its_answers(stops, part):
    controller, observations, loop = stops
    observations.serves, observations.answers, observations.can_save = True, True, False

    controller.limit_time(0)
    loop._timers.pop()[-1]()

    ((due, _, _),) = loop._timers
    assert due - time.monotonic() == pytest.approx(ANSWER_SECONDS["pause"], abs=1)
    assert part.calls == ["ranks are asked to pause"]


def test_replica_that_does_not_answer_yet_has_nothing_to_finish(stops, part):
    controller, observations, _ = stops
    observations.serves, observations.can_save = True, False

    controller.apply(ControlRequests(requested="drain", pause_saves=True, checkpoint_requests=0))

    assert part.calls == ["ranks are terminated"]
    assert observations.stopping == "drain"


def test_pause_that_would_lose_steps_is_given_up_after_that_time(stops, part):
    controller, observations, loop = stops
    controller.stop("pause")

    ((_, _, end),) = loop._timers
    end()

    assert part.calls == ["ranks are asked to pause", "ranks are asked to continue", "the pause is withdrawn"]
    assert (observations.stopping, observations.pause_given_up) == (None, True)


def test_pause_that_is_taken_back_before_ranks_run_is_left_to_the_end_of_the_attempt(stops, part):
    controller, observations, _ = stops
    part.root_pid = 0
    controller.stop("pause")

    controller.apply(ControlRequests(requested=None, pause_saves=True, checkpoint_requests=0))

    assert (observations.stopping, part.calls) == ("pause", ["ranks are asked to pause"])


def test_pause_that_is_taken_back_once_the_ranks_have_stopped_is_left_to_the_end_of_the_attempt(stops, part):
    controller, observations, _ = stops
    controller.stop("pause")
    observations.result, observations.exit_code = Result(stopped="pause", step=5), 0

    controller.apply(ControlRequests(requested=None, pause_saves=True, checkpoint_requests=0))

    outcome = judge(observations)
    assert (outcome.kind, outcome.on_request) == ("paused", True)


@pytest.mark.parametrize("seen", [(None, "pause"), ("requeue",), ("preempt",)])
def test_ranks_continue_when_their_pause_is_taken_back_and_may_be_asked_to_stop_again(stops, part, seen):
    controller, observations, _ = stops
    controller.stop("pause")

    for requested in seen:
        controller.apply(ControlRequests(requested=requested, pause_saves=True, checkpoint_requests=0))

    assert part.calls == ["ranks are asked to pause", "ranks are asked to continue", f"ranks are asked to {seen[-1]}"]
    assert (observations.stopping, observations.forced) == (seen[-1], seen[-1] != "pause")


def test_time_that_ended_during_a_pause_counts_once_the_pause_is_taken_back(stops, part):
    controller, observations, loop = stops
    controller.stop("pause")
    controller.limit_time(0)
    min(loop._timers)[-1]()
    assert observations.stopping == "pause"

    controller.apply(ControlRequests(requested=None, pause_saves=True, checkpoint_requests=0))

    assert part.calls == ["ranks are asked to pause", "ranks are asked to continue", "ranks are asked to pause"]
    assert (observations.stopping, observations.forced) == (TIME_LIMIT, True)


def test_pause_that_was_saved_is_one_although_the_ranks_do_not_end(stops, part):
    controller, observations, loop = stops
    controller.stop("pause")
    observations.result = Result(stopped="pause", step=5)

    ((_, _, end),) = loop._timers
    end()

    assert part.calls == ["ranks are asked to pause", "ranks are terminated"]
    assert judge(observations).kind == "paused"


@pytest.mark.usefixtures("_own_signals")
def test_machine_that_goes_down_during_a_pause_costs_nothing_though_the_save_fails(stops):
    controller, observations, loop = stops
    controller.listen_to_signals(lambda: None)
    controller.stop("pause")
    os.kill(os.getpid(), signal.SIGTERM)
    loop.run_until(lambda: observations.forced)

    controller.pause_failed("no room")

    observations.exits.append(RankExit(rank=0, exit_code=143, signal="SIGTERM"))
    observations.exit_code = 143
    assert judge(observations).kind == "paused"


def test_pause_of_ranks_that_are_ended_already_is_not_given_up(stops, part):
    controller, observations, _ = stops
    controller.stop("pause")
    observations.terminated = True

    controller.pause_failed("no room")

    assert part.calls == ["ranks are asked to pause"]
    assert (observations.stopping, observations.unsaved) == ("pause", "no room")


HANG = Hang(step=5, seconds=70.0, allowed=60.0, doing="training", stopped=())


def test_hang_is_ended_although_its_stacks_can_not_be_stored(assemble, world, part, monkeypatch):
    monkeypatch.setattr("workers.supervisor.main.KEEP_SECONDS", 0.3)
    assembly = assemble()
    storage = StuckStorage(world.settings.storage.url)
    assembly.context = replace(assembly.context, storage=storage)
    supervisor, loop = Supervisor(assembly), assembly.loop

    supervisor.on_hang(HANG)
    late = []
    loop.call_after(10.0, lambda: late.append(True))
    loop.run_until(lambda: bool(part.calls or late))

    assert part.calls == ["ranks are terminated"]
    outcome = judge(assembly.observations)
    assert (outcome.kind, outcome.cause) == ("failed", "HANG")
    assert "after step 5" in outcome.message
    assert "their stacks could not be kept within" in outcome.message
    storage.is_back.set()
    (keeper,) = [thread for thread in threading.enumerate() if thread.name == "stacks"]
    keeper.join()
    done = []
    loop.call(lambda: done.append(True))
    loop.run_until(lambda: bool(done))
    assert judge(assembly.observations) == outcome, "what comes later is no news"
    supervisor.close()


@pytest.fixture
def agent(assemble):
    """Launched ranks with the agent's end of their channel, and what they go by."""
    assembly, (ours, theirs) = assemble(WithRealRanks), socket.socketpair()
    disk = assembly.disk_watch(on_waiting=lambda _: None, on_over=lambda _: None)
    recorders = assembly.recorders(disk, answer=lambda _: None, on_lost=lambda _: None)
    launched, kills = EndedAgent(ours), [3]
    pauses_failed: list[str] = []
    ranks = assembly.rank_group(recorders, on_training=lambda: None, on_pause_failed=pauses_failed.append)
    ranks.launch(prepared(assembly), start=lambda _: launched, memory_kills=RecentKills(lambda: kills[-1]))
    yield Agent(
        ranks, assembly.loop, assembly.observations, launched, theirs, kills, pauses_failed, assembly.context.run
    )
    theirs.close()
    ranks.end(lambda: 0.0)
    recorders.close()
    assembly.loop.close()


def test_pause_that_was_given_up_says_nothing_of_the_next_one(agent):
    said = (
        Hello(can_checkpoint=True),
        PauseFailed("of the one before", number=0),
        PauseFailed("of this one", number=1),
        PauseFailed("of an older library"),
    )
    agent.ranks.forget_stop()

    with socket.socket(socket.AF_UNIX) as rank:
        with short_address(agent.run.channel) as address:
            rank.connect(address)
        rank.sendall(b"".join(encode({"type": each.type, "rank": 0, **fields_of(each)}) for each in said))
        agent.loop.run_until(lambda: agent.pauses_failed[-1:] == ["of an older library"])

    assert agent.pauses_failed == ["of this one", "of an older library"]


def test_hang_is_concluded_although_a_checkpoint_can_not_be_stored(assemble, monkeypatch):
    monkeypatch.setattr("workers.supervisor.finalize.SHORT_DRAIN_SECONDS", 0.2)
    assembly = assemble(WithStuckCheckpoints)
    supervisor = Supervisor(assembly)
    assembly.observations.failure = without_stacks(HANG)

    concluding = threading.Thread(target=supervisor.conclude)
    concluding.start()
    concluding.join(10)

    with assembly.db.read() as session:
        assert session.query(Attempt).filter_by(number=1).one().cause == "HANG"
    assert not concluding.is_alive()
    supervisor.close()


def test_error_of_ours_before_the_outcome_is_known_is_no_fault_of_the_node(assemble):
    assembly = assemble(WithRealRanks)
    supervisor = Supervisor(assembly)
    assembly.observations.stopping, assembly.observations.forced = "a request that no table knows", True

    supervisor.conclude()

    with assembly.db.read() as session:
        attempt = session.query(Attempt).filter_by(number=1).one()
        assert attempt.cause == "OUTCOME_ERROR"
        assert attempt.end_reason == "the outcome of the attempt could not be written: KeyError"
        assert session.query(NodeFault).count() == 0
        assert session.query(Lease).filter(Lease.released_at.is_(None)).count() == 0
    supervisor.close()


def test_malformed_message_of_the_agent_counts_as_its_end(agent):
    agent.control.sendall(b'{"type":"rank_exit","rank":0,"exit_code":1}\n{"type":"rank_exit","rank":"?"}\n')

    agent.loop.run_until(lambda: agent.ranks.ended)

    assert agent.observations.exit_code == -9
    assert [gone.exit_code for gone in agent.observations.exits] == [1]


def test_kills_for_memory_count_until_the_first_rank_has_broken(agent):
    agent.kills.append(4)

    agent.control.sendall(b'{"type":"rank_exit","rank":0,"exit_code":1}\n')
    agent.loop.run_until(lambda: bool(agent.observations.exits))
    agent.kills.append(9)
    agent.control.close()
    agent.loop.run_until(lambda: agent.ranks.ended)

    assert agent.observations.out_of_memory_kills == 1


@pytest.mark.parametrize("terminated", [False, True])
def test_others_are_killed_after_the_teardown_but_not_within_a_grace_that_they_were_given(
    agent, monkeypatch, terminated
):
    monkeypatch.setattr("workers.supervisor.control.rank_group.TEARDOWN_SECONDS", -0.9)
    agent.observations.terminated = terminated
    waited: list[bool] = []
    agent.loop.call_after(0.5, lambda: waited.append(True))

    agent.control.sendall(b'{"type":"rank_exit","rank":0,"exit_code":1}\n')
    agent.loop.run_until(lambda: bool(waited))

    assert bool(agent.launched.agent_kills) != terminated


def test_what_can_not_be_killed_is_left_behind_once_patience_ends(agent):
    left = [600.0, 600.0, 0.0]  # as when the lease is lost meanwhile

    agent.ranks.kill(lambda: left.pop(0))

    assert (agent.ranks.left_behind, agent.launched.kills) == (True, 3)
    agent.ranks.kill(lambda: 600.0)
    assert agent.launched.kills == 3, "it is not waited for again"
