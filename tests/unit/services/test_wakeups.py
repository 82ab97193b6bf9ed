"""The dispatcher: its callers never wait and never fail, whatever the broker does."""

import os
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from app.services.requests import wakeups
from app.services.requests.wakeups import Dispatcher, Message
from config.settings import Settings, load_settings
from tests.systems.system import wait_for


class Broker:
    """Takes messages, unless a test makes it fail or hang."""

    def __init__(self) -> None:
        self.taken: list[Message] = []
        self.connections = 0
        self.failures = 0
        self.may_answer = threading.Event()
        self.may_answer.set()

    def connect(self, _settings: Settings) -> Callable[[Message], None]:
        self.connections += 1
        return self.publish

    def publish(self, message: Message) -> None:
        self.may_answer.wait(10)
        if self.failures:
            self.failures -= 1
            raise ConnectionError("gone")
        self.taken.append(message)

    def wait_for(self, count: int) -> list[Message]:
        wait_for(lambda: len(self.taken) >= count, seconds=5, what=f"{count} messages")
        return self.taken

    def wait_for_last(self, arguments: tuple[str, ...]) -> list[Message]:
        wait_for(
            lambda: self.taken and self.taken[-1].arguments == arguments, seconds=5, what=f"{arguments} as the last"
        )
        return self.taken


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
def dispatcher(broker: Broker) -> Iterator[Dispatcher]:
    made = Dispatcher(load_settings({}), connect=broker.connect)
    yield made
    broker.may_answer.set()
    made.close()


def test_each_ring_becomes_its_message(dispatcher: Dispatcher, broker: Broker) -> None:
    dispatcher.ring_admit("job-1", "default", 10)
    dispatcher.ring_run([("job-1", 2)], "box", "h200", 0)
    dispatcher.ring_run([("job-2", 1), ("job-3", 4)], "box", "cpu", 5)
    dispatcher.nudge("job-1", "box")

    assert broker.wait_for(4) == [
        Message("trainyard.admit", ("job-1",), "jobs.default", 0),
        Message("trainyard.run", (("job-1", 2),), "gpu.h200.box", 9),
        Message("trainyard.run", (("job-2", 1), ("job-3", 4)), "cpu.box", 5),
        Message("nudge", ("job-1",), node="box"),
    ]


def test_nothing_connects_before_the_first_ring(dispatcher: Dispatcher, broker: Broker) -> None:
    assert broker.connections == 0

    dispatcher.nudge("job-1", "box")

    broker.wait_for(1)
    assert broker.connections == 1


def test_ringing_does_not_wait_for_a_broker_that_hangs(dispatcher: Dispatcher, broker: Broker) -> None:
    broker.may_answer.clear()

    before = time.monotonic()
    for number in range(5 * wakeups.WAITING_LIMIT):
        dispatcher.ring_admit(f"job-{number}", "default", 5)

    assert time.monotonic() - before < 1
    broker.may_answer.set()
    dispatcher.nudge("job-last", "box")
    taken = broker.wait_for_last(("job-last",))
    assert taken[-2].arguments[-1] == f"job-{5 * wakeups.WAITING_LIMIT - 1}"


def test_submissions_that_arrive_together_share_messages(dispatcher: Dispatcher, broker: Broker) -> None:
    broker.may_answer.clear()
    dispatcher.nudge("job-0", "box")  # keeps the thread busy
    for number in range(1, wakeups.MOST_TOGETHER + 2):
        dispatcher.ring_admit(f"job-{number}", "default", 5)
    dispatcher.ring_admit("job-urgent", "default", 10)
    dispatcher.ring_admit("job-elsewhere", "other", 5)
    dispatcher.nudge("job-last", "box")
    broker.may_answer.set()

    sent = [message.arguments for message in broker.wait_for_last(("job-last",))]

    together = tuple(f"job-{number}" for number in range(1, wakeups.MOST_TOGETHER + 1))
    rest = (f"job-{wakeups.MOST_TOGETHER + 1}",)
    assert sent == [("job-0",), together, rest, ("job-urgent",), ("job-elsewhere",), ("job-last",)]


def test_attempts_for_a_node_that_wait_for_the_broker_share_a_message(dispatcher: Dispatcher, broker: Broker) -> None:
    broker.may_answer.clear()
    dispatcher.nudge("job-0", "box")  # keeps the thread busy
    dispatcher.ring_run([("job-1", 1), ("job-2", 1)], "box", "cpu", 5)
    dispatcher.ring_run([("job-3", 1)], "other", "cpu", 5)
    dispatcher.ring_run([("job-4", 3)], "box", "cpu", 5)
    many = [(f"job-{number}", 1) for number in range(5, 5 + wakeups.MOST_TOGETHER - 2)]
    dispatcher.ring_run(many, "box", "cpu", 5)
    broker.may_answer.set()

    assert [(message.queue, message.arguments) for message in broker.wait_for(4)[1:]] == [
        ("cpu.box", (("job-1", 1), ("job-2", 1), ("job-4", 3))),
        ("cpu.other", (("job-3", 1),)),
        ("cpu.box", tuple(many)),
    ]


def test_first_of_many_submissions_is_sent_at_once(
    dispatcher: Dispatcher, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakeups, "GATHER_SECONDS", 30.0)

    for number in range(3):
        dispatcher.ring_admit(f"job-{number}", "default", 5)
        broker.wait_for(1)

    assert [message.arguments for message in broker.taken] == [("job-0",)]
    dispatcher.close()  # does not wait for more to come
    assert broker.taken[-1].arguments == ("job-1", "job-2")


def test_dropped_connection_is_reopened_and_the_message_sent(dispatcher: Dispatcher, broker: Broker) -> None:
    broker.failures = 1

    dispatcher.nudge("job-1", "box")

    assert [message.arguments for message in broker.wait_for(1)] == [("job-1",)]
    assert broker.connections == 2


def test_failing_broker_costs_messages_but_nothing_else(dispatcher: Dispatcher, broker: Broker) -> None:
    broker.failures = 2

    dispatcher.nudge("job-1", "box")
    dispatcher.nudge("job-2", "box")

    assert [message.arguments for message in broker.wait_for(1)] == [("job-2",)]


def test_stale_messages_are_not_sent(broker: Broker, monkeypatch: pytest.MonkeyPatch, dispatcher: Dispatcher) -> None:
    monkeypatch.setattr(wakeups, "STALE_SECONDS", 0.05)
    broker.may_answer.clear()
    dispatcher.nudge("job-1", "box")
    dispatcher.nudge("job-2", "box")
    time.sleep(0.1)  # both grow stale; the first one is being sent

    broker.may_answer.set()
    dispatcher.nudge("job-3", "box")

    assert [message.arguments[0] for message in broker.wait_for(2)] == ["job-1", "job-3"]


def test_closing_sends_what_waits(broker: Broker) -> None:
    dispatcher = Dispatcher(load_settings({}), connect=broker.connect)
    for number in range(100):
        dispatcher.nudge(f"job-{number}", "box")

    dispatcher.close()

    assert len(broker.taken) == 100
    dispatcher.nudge("job-late", "box")
    assert len(broker.taken) == 100


def test_closing_does_not_wait_for_a_broker_that_hangs(broker: Broker) -> None:
    dispatcher = Dispatcher(load_settings({}), connect=broker.connect)
    broker.may_answer.clear()
    dispatcher.nudge("job-1", "box")

    before = time.monotonic()
    dispatcher.close()

    assert time.monotonic() - before < 1.5
    broker.may_answer.set()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_forked_process_rings_by_itself(dispatcher: Dispatcher, broker: Broker) -> None:
    dispatcher.nudge("job-parent", "box")
    broker.wait_for(1)

    child = os.fork()
    if child == 0:
        dispatcher.nudge("job-child", "box")
        os._exit(0 if len(broker.wait_for(2)) == 2 else 1)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(broker.taken) == 1
