"""In which order a supervisor does what must not go wrong, with doubles for the parts that would take minutes."""

import os
import signal
import socket
import threading
import time

import pytest

from app.models import Attempt, Lease, NodeFault
from app.services.attempts import work_orders
from config.watching import WatchSettings
from tests.factories import make_attempt, make_job, make_node
from tests.supervising import World
from trainyard.protocol.messages import PauseFailed, RankExit, Result
from workers.supervisor.control.hang_detector import Hang
from workers.supervisor.control.hang_report import without_stacks
from workers.supervisor.control.stop_controller import PAUSE_SAVE_SECONDS, PREEMPT_SAVE_SECONDS, REQUEUE_SAVE_SECONDS
from workers.supervisor.main import Supervisor
from workers.supervisor.ranks.event_loop import MainLoop
from workers.supervisor.ranks.oom_kills import RecentKills
from workers.supervisor.ranks.progress_watchdog import StepWatch
from workers.supervisor.ranks.rank_group import Ranks
from workers.supervisor.ranks.rank_logs import RankLogs
from workers.supervisor.ranks.rank_reports import RankReports
from workers.supervisor.ranks.verdict import Sightings, judge


class Part:
    """Stands for the ranks and for the renewal; remembers what was called."""

    ended = left_behind = False
    write_stacks: frozenset[int] = frozenset()
    root_pid = os.getpid()

    def __init__(self):
        self.calls = []
        self.pids = {}

    def start(self):
        self.calls.append("renewal starts")

    def stop(self):
        self.calls.append("renewal stops")

    def kill(self, patience):
        self.calls.append("ranks are dead")

    def end(self, patience):
        raise RuntimeError("a fault of ours")

    def ask_for_stacks(self):
        """There is no rank that could answer."""

    def nudge(self):
        pass

    def unfence(self):
        pass

    def ask_to_stop(self, kind, *, save, force):
        self.calls.append(f"ranks are asked to {kind}")
        return True

    def forget_stop(self):
        self.calls.append("ranks are told to go on")

    def terminate(self, grace_seconds):
        self.calls.append("ranks are terminated")

    def before_the_next(self, errand):
        self.calls.append("the wish is taken back")


class EndedAgent:
    """A launched attempt whose agent speaks over ``control``."""

    def __init__(self, control):
        self.control = control
        self.kills = 0

    def wait(self):
        return -9

    def kill(self, *, root_pid):
        """It can't."""
        self.kills += 1
        return False


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
def supervisor(world: World, part, monkeypatch, _own_signals):
    with world.db.write() as session:
        job = make_job(session)
        make_attempt(session, job, make_node(session, "n"))
        job_id = job.id
    work = work_orders.load_work(world.db, job_id, 1)
    supervisor = Supervisor(world.settings, world.db, work, time.monotonic())
    monkeypatch.setattr(supervisor, "_ranks", part)
    monkeypatch.setattr(supervisor._obedience, "_ranks", part)
    monkeypatch.setattr(supervisor, "_renewal", part)
    monkeypatch.setattr(supervisor, "_train", lambda: None)
    return supervisor


def test_ranks_are_dead_before_renewal_and_fence_end_whatever_was_raised(supervisor, part):
    with pytest.raises(RuntimeError, match="a fault of ours"):
        supervisor.run()

    assert part.calls == ["renewal starts", "ranks are dead", "renewal stops"]


@pytest.mark.parametrize(
    ("wish", "seconds"),
    [("requeue", REQUEUE_SAVE_SECONDS), ("preempt", PREEMPT_SAVE_SECONDS), ("pause", PAUSE_SAVE_SECONDS)],
)
def test_ranks_that_never_stop_are_ended_after_a_bounded_time(supervisor, part, wish, seconds):
    supervisor._obedience.stop(wish, save=True, force=True)

    ((due, _, end),) = supervisor._loop._timers
    assert due - time.monotonic() == pytest.approx(seconds, abs=1)
    end()
    assert part.calls == [f"ranks are asked to {wish}", "ranks are terminated"]
    supervisor._close()


def test_pause_that_would_lose_steps_is_given_up_after_that_time(supervisor, part):
    supervisor._obedience.stop("pause")

    ((_, _, end),) = supervisor._loop._timers
    end()

    assert part.calls == ["ranks are asked to pause", "ranks are told to go on", "the wish is taken back"]
    assert (supervisor._seen.stopping, supervisor._seen.gave_up) == (None, True)
    supervisor._close()


def test_pause_that_was_saved_is_one_although_the_ranks_do_not_end(supervisor, part):
    supervisor._obedience.stop("pause")
    supervisor._seen.result = Result(stopped="pause", step=5, tokens=0, final_metrics={}, weight_files=())

    ((_, _, end),) = supervisor._loop._timers
    end()

    assert part.calls == ["ranks are asked to pause", "ranks are terminated"]
    assert judge(supervisor._seen).kind == "paused"
    supervisor._close()


def test_machine_that_goes_down_during_a_pause_costs_nothing_though_the_save_fails(supervisor):
    supervisor._obedience.stop("pause")
    supervisor._obedience._give_back()

    supervisor._obedience.pause_failed("no room")

    supervisor._seen.exits.append(RankExit(rank=0, exit_code=143, signal="SIGTERM"))
    supervisor._seen.exit_code = 143
    assert judge(supervisor._seen).kind == "paused"
    supervisor._close()


def test_pause_of_ranks_that_are_ended_already_is_not_given_up(supervisor, part):
    supervisor._obedience.stop("pause")
    supervisor._seen.terminated = True

    supervisor._obedience.pause_failed("no room")

    assert part.calls == ["ranks are asked to pause"]
    assert (supervisor._seen.stopping, supervisor._seen.unsaved) == ("pause", "no room")
    supervisor._close()


HANG = Hang(step=5, seconds=70.0, allowed=60.0, doing="training", stopped=())


def test_hang_is_ended_although_its_stacks_can_not_be_stored(supervisor, part, monkeypatch):
    storage_is_back = threading.Event()
    monkeypatch.setattr("workers.supervisor.main.KEEP_SECONDS", 0.3)
    monkeypatch.setattr(supervisor._ground.storage, "write", lambda *_: storage_is_back.wait(20))

    supervisor._hung(HANG)
    late = []
    supervisor._loop.call_after(10.0, lambda: late.append(True))
    supervisor._loop.run_until(lambda: bool(part.calls or late))

    assert part.calls == ["ranks are terminated"]
    verdict = judge(supervisor._seen)
    assert (verdict.kind, verdict.cause) == ("failed", "HANG")
    assert "after step 5" in verdict.message
    assert "their stacks could not be kept within" in verdict.message
    storage_is_back.set()
    (keeper,) = [thread for thread in threading.enumerate() if thread.name == "stacks"]
    keeper.join()
    supervisor._loop.run_until(lambda: not supervisor._loop._calls)
    assert judge(supervisor._seen) == verdict, "what comes later is no news"
    supervisor._close()


@pytest.fixture
def agent(supervisor, monkeypatch):
    """Ranks as a launched attempt has them, and the agent's end of their channel."""
    ours, theirs = socket.socketpair()
    loop, seen, keeping = MainLoop(), Sightings(custom=True), supervisor._keeping
    ranks = Ranks(
        loop, supervisor._run, seen,
        reports=RankReports(keeping.reporter, keeping.events, StepWatch(WatchSettings(), custom=True)),
        checkpoints=keeping.checkpoints, logs=RankLogs(loop, keeping.logs), on_pause_failed=lambda _: None,
    )  # fmt: skip
    monkeypatch.setattr(ranks, "_launched", EndedAgent(ours))
    loop.watch(ours, ranks._hear_agent)
    yield ranks, theirs
    for end in (ours, theirs, loop):
        end.close()
    supervisor._close()


def test_pause_that_was_given_up_says_nothing_of_the_next_one(agent, monkeypatch):
    ranks, _ = agent
    heard: list[str] = []
    monkeypatch.setattr(ranks, "_on_pause_failed", heard.append)

    ranks.forget_stop()
    for number, message in ((0, "of the one before"), (1, "of this one"), (None, "of an older library")):
        ranks._take_from_leader(PauseFailed(message, number=number))

    assert heard == ["of this one", "of an older library"]


def test_hang_is_concluded_although_a_checkpoint_can_not_be_stored(supervisor, agent, monkeypatch):
    ranks, _ = agent
    checkpoints = supervisor._keeping.checkpoints
    monkeypatch.setattr("workers.supervisor.finalize.SHORT_DRAIN_SECONDS", 0.2)
    monkeypatch.setattr(supervisor, "_ranks", ranks)
    monkeypatch.setattr(checkpoints, "_busy", True)  # in a storage that does not answer
    supervisor._seen.failure = without_stacks(HANG)

    concluding = threading.Thread(target=supervisor._conclude)
    concluding.start()
    concluding.join(10)

    with supervisor._db.read() as session:
        assert session.query(Attempt).filter_by(number=1).one().cause == "HANG"
    assert not concluding.is_alive()


def test_error_of_ours_before_the_outcome_is_known_is_no_fault_of_the_node(supervisor, agent, monkeypatch):
    ranks, _ = agent
    monkeypatch.setattr(supervisor, "_ranks", ranks)
    supervisor._seen.stopping, supervisor._seen.forced = "a wish that no table knows", True

    supervisor._conclude()

    with supervisor._db.read() as session:
        attempt = session.query(Attempt).filter_by(number=1).one()
        assert attempt.cause == "OUTCOME_ERROR"
        assert attempt.end_reason == "the outcome of the attempt could not be written: KeyError"
        assert session.query(NodeFault).count() == 0
        assert session.query(Lease).filter(Lease.released_at.is_(None)).count() == 0


def test_broken_word_of_the_agent_is_its_end(agent):
    ranks, theirs = agent
    theirs.sendall(b'{"type":"rank_exit","rank":0,"exit_code":1}\n{"type":"rank_exit","rank":"?"}\n')

    ranks._loop.run_until(lambda: ranks.ended)

    assert ranks._seen.exit_code == -9
    assert [gone.exit_code for gone in ranks._seen.exits] == [1]


def test_kills_for_memory_count_until_the_first_rank_has_broken(agent, monkeypatch):
    ranks, theirs = agent
    kills = [3]
    monkeypatch.setattr(ranks, "_memory_kills", RecentKills(lambda: kills[-1]))
    kills.append(4)

    theirs.sendall(b'{"type":"rank_exit","rank":0,"exit_code":1}\n')
    ranks._loop.run_until(lambda: bool(ranks._seen.exits))
    kills.append(9)
    theirs.close()
    ranks._loop.run_until(lambda: ranks.ended)

    assert ranks._seen.out_of_memory_kills == 1


@pytest.mark.parametrize("terminated", [False, True])
def test_others_are_killed_after_the_teardown_but_not_within_a_grace_that_they_were_given(
    agent, monkeypatch, terminated
):
    ranks, theirs = agent
    killed = []
    monkeypatch.setattr(ranks, "_kill_what_is_left", lambda: killed.append(True))
    monkeypatch.setattr("workers.supervisor.ranks.rank_group.TEARDOWN_SECONDS", -0.9)
    ranks._seen.terminated = terminated
    waited: list[bool] = []
    ranks._loop.call_after(0.5, lambda: waited.append(True))

    theirs.sendall(b'{"type":"rank_exit","rank":0,"exit_code":1}\n')
    ranks._loop.run_until(lambda: bool(waited))

    assert bool(killed) != terminated


def test_what_can_not_be_killed_is_left_behind_once_patience_ends(agent):
    ranks, _ = agent
    left = [600.0, 600.0, 0.0]  # as when the lease is lost meanwhile

    ranks.kill(lambda: left.pop(0))

    assert (ranks.left_behind, ranks._launched.kills) == (True, 3)
    ranks.kill(lambda: 600.0)
    assert ranks._launched.kills == 3, "it is not waited for again"
