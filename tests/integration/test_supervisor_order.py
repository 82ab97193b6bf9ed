"""In which order a supervisor does what must not go wrong, with doubles for the parts that would take minutes."""

import signal
import socket
import time

import pytest

from app.services import attempts
from tests.factories import make_attempt, make_job, make_node
from tests.supervising import World
from workers.main_loop import MainLoop
from workers.outcomes import Sightings
from workers.ranks import Ranks
from workers.supervisor import PAUSE_SAVE_SECONDS, REQUEUE_SAVE_SECONDS, Supervisor


class Part:
    """Stands for the ranks and for the renewal; remembers what was called."""

    def __init__(self):
        self.calls = []

    def start(self):
        self.calls.append("renewal starts")

    def stop(self):
        self.calls.append("renewal stops")

    def kill(self):
        self.calls.append("ranks are dead")

    def end(self):
        raise RuntimeError("a fault of ours")

    def ask_to_stop(self, kind, *, save):
        self.calls.append(f"ranks are asked to {kind}")
        return True

    def terminate(self, grace_seconds):
        self.calls.append("ranks are terminated")


class EndedAgent:
    """A launched attempt whose agent speaks over ``control``."""

    def __init__(self, control):
        self.control = control

    def wait(self):
        return -9


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
    work = attempts.load_work(world.db, job_id, 1)
    supervisor = Supervisor(world.settings, world.db, work, time.monotonic())
    monkeypatch.setattr(supervisor, "_ranks", part)
    monkeypatch.setattr(supervisor, "_renewal", part)
    monkeypatch.setattr(supervisor, "_train", lambda: None)
    return supervisor


def test_ranks_are_dead_before_renewal_and_fence_end_whatever_was_raised(supervisor, part):
    with pytest.raises(RuntimeError, match="a fault of ours"):
        supervisor.run()

    assert part.calls == ["renewal starts", "ranks are dead", "renewal stops"]


@pytest.mark.parametrize(("wish", "seconds"), [("requeue", REQUEUE_SAVE_SECONDS), ("pause", PAUSE_SAVE_SECONDS)])
def test_ranks_that_never_stop_are_ended_after_a_bounded_time(supervisor, part, wish, seconds):
    supervisor._stop(wish, save=True)

    ((due, _, end),) = supervisor._loop._timers
    assert due - time.monotonic() == pytest.approx(seconds, abs=1)
    end()
    assert part.calls == [f"ranks are asked to {wish}", "ranks are terminated"]
    supervisor._close()


def test_broken_word_of_the_agent_is_its_end(supervisor, monkeypatch):
    ours, theirs = socket.socketpair()
    loop, seen = MainLoop(), Sightings(custom=True)
    ranks = Ranks(
        loop, supervisor._run, seen,
        reporter=supervisor._reporter, checkpoints=supervisor._checkpoints, logs=supervisor._logs,
        events=supervisor._events,
    )  # fmt: skip
    monkeypatch.setattr(ranks, "_launched", EndedAgent(ours))
    loop.watch(ours, ranks._hear_agent)
    theirs.sendall(b'{"type":"rank_exit","rank":0,"exit_code":1}\n{"type":"rank_exit","rank":"?"}\n')

    loop.run_until(lambda: ranks.ended)

    assert seen.exit_code == -9
    assert [gone.exit_code for gone in seen.exits] == [1]
    for end in (ours, theirs, loop):
        end.close()
    supervisor._close()
