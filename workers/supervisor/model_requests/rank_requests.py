"""Models that ranks ask over the channel: each answer goes to the rank that asked, as fast as that one reads."""

import time
from collections.abc import Callable
from functools import partial

from trainyard.protocol.commands import ModelAnswered, to_message
from trainyard.protocol.messages import AskModel
from workers.supervisor.model_requests.forwarding import ModelRequests
from workers.supervisor.ranks.channel_server import ChannelConnection
from workers.supervisor.ranks.event_loop import EventLoop
from workers.supervisor.ranks.progress_watchdog import ProgressWatchdog

MOST_UNREAD_BYTES = 1 << 20  # of one rank, which gets no more answers meanwhile
UNREAD_SECONDS = 0.05


class RankRequests:
    """Methods belong to the loop's thread."""

    def __init__(self, loop: EventLoop, steps: ProgressWatchdog, requests: ModelRequests) -> None:
        self._loop = loop
        self._steps = steps
        self._requests = requests

    def ask(self, connection: ChannelConnection, request: AskModel) -> None:
        """Of any rank; returns at once."""
        self._steps.asked(time.monotonic())

        def deliver(answer: ModelAnswered, sent: Callable[[], None] | None) -> None:
            self._loop.call(partial(self._answer, connection, answer, sent))

        self._requests.ask(request, deliver)

    def close(self) -> None:
        """End what is asked; calling it again does nothing."""
        self._requests.close()

    def _answer(self, to: ChannelConnection, answer: ModelAnswered, sent: Callable[[], None] | None) -> None:
        is_full = to.is_open and to.unsent_bytes > MOST_UNREAD_BYTES
        if is_full and sent is not None:  # as many as requests at the gateway
            self._loop.call_after(UNREAD_SECONDS, partial(self._answer, to, answer, sent))
            return
        self._steps.model_answered(time.monotonic())
        if is_full:  # refusals are kept for no one: a rank can ask for any number of them
            to.hang_up("it asks models more than may wait, and does not read the answers")
        elif to.is_open:
            to.send(to_message(answer))
        if sent is not None:
            sent()
