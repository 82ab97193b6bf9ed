"""What people, the platform and the clock want of a running attempt, brought about: stop, save, go on after all."""

import logging
import signal
from collections.abc import Callable

from app.host import processes
from app.services.attempts.leases import Wishes
from workers.supervisor.ranks.event_loop import MainLoop
from workers.supervisor.ranks.observations import TIME_LIMIT, Sightings
from workers.supervisor.ranks.rank_group import Ranks

log = logging.getLogger(__name__)

TIME_LIMIT_SAVE_SECONDS = 30.0
# A node that drains, or `trainyard up` that was asked to stop, waits 30 s for its jobs.
REQUEUE_SAVE_SECONDS = 25.0
# Somebody more urgent waits for the devices, but not for a node that goes down.
PREEMPT_SAVE_SECONDS = 120.0
# A person waits, and the devices with them: long enough for the checkpoint of a large model at the end of a long step.
# A pause that is not forced is given up then, the others end the ranks.
PAUSE_SAVE_SECONDS = 600.0
SAVE_SECONDS = {"pause": PAUSE_SAVE_SECONDS, "requeue": REQUEUE_SAVE_SECONDS, "preempt": PREEMPT_SAVE_SECONDS}
# Ranks that need not save only have to come to the end of their step.
UNSAVED_STOP_SECONDS = 10.0


class Obedience:
    """All methods belong to the loop's thread, but ``listen_to_signals``, which belongs to the main thread.

    ``withdraw`` takes a pause that can't be saved back, and calls the loop when nobody reads it any more.
    ``follows``: of several nodes it is not the first, whose supervisor alone knows whether a pause could be saved.
    ``checkpoints_asked``: so many wishes for a checkpoint were passed on before; None: what is read first is old.
    """

    def __init__(
        self, loop: MainLoop, seen: Sightings, ranks: Ranks, *, grace_seconds: float,
        withdraw: Callable[[str, Callable[[], None]], None], checkpoints_asked: int | None = None,
        follows: bool = False,
    ) -> None:  # fmt: skip
        self._follows = follows
        self._loop = loop
        self._seen = seen
        self._ranks = ranks
        self._grace_seconds = grace_seconds
        self._withdraw = withdraw
        self._withdrawing = False
        self._stops = 0
        self._time_is_up = False
        self.checkpoints_asked = checkpoints_asked
        self.told_to_end = False  # by a signal: the machine goes down

    def obey(self, wishes: Wishes) -> None:
        """Bring about what a renewal has read."""
        if self.checkpoints_asked is None:
            self.checkpoints_asked = wishes.checkpoint_requests
        wish = wishes.requested
        if wish == "cancel":
            self._cancel()
        elif wish == "pause" and not self._withdrawing:
            self.stop(wish, save=wishes.pause_saves, force=wishes.pause_force)
        elif wish in ("requeue", "preempt"):
            self.stop(wish, force=True)
        elif wish is None and self._follows:
            self._taken_back()
        while self.checkpoints_asked < wishes.checkpoint_requests:
            self.checkpoints_asked += 1
            self._ranks.ask_for_checkpoint()

    def stop(self, wish: str, *, save: bool = True, force: bool = False) -> None:
        """Give the ranks their time to save and stop; what is not saved by then is done again.

        A pause that is repeated may have become more urgent; any other wish comes too late for a stop under way.
        """
        if self._seen.stopping is None:
            seconds = SAVE_SECONDS[wish] if save else UNSAVED_STOP_SECONDS
            self._begin(wish, told_as=wish, save=save, force=force, seconds=seconds)
        elif self._seen.stopping == wish == "pause":
            self._hurry(save=save, force=force)

    def limit_time(self, seconds: float) -> None:
        """The job may run that long from now on."""
        self._loop.call_after(max(0.0, seconds), self._end_of_time)

    def pause_failed(self, message: str) -> None:
        """The ranks could not save for the pause, and go on."""
        if self._seen.stopping is None or self._seen.stopping == "cancel":
            return
        self._seen.unsaved = message
        if self._seen.terminated:
            return  # they end, whatever they say
        if self._seen.forced:
            self._ranks.terminate(self._grace_seconds)  # they did not know yet that they must
        else:
            self._give_up(message)

    def listen_to_signals(self, nudge: Callable[[], None]) -> None:
        """SIGUSR1: look at the wishes now. SIGTERM: the machine goes down."""

        # A handler may interrupt anything, therefore both only leave a note for the loop.
        def terminated(_number: int, _frame: object) -> None:
            self.told_to_end = True
            self._loop.call(self._give_back)

        signal.signal(signal.SIGUSR1, lambda _number, _frame: self._loop.call(nudge))
        signal.signal(signal.SIGTERM, terminated)
        processes.let_through(signal.SIGTERM)  # held back while one attempt's supervisor became the next one's

    def _give_back(self) -> None:
        """No time to save: the job goes on elsewhere from its last checkpoint."""
        self._seen.stopping, self._seen.forced = self._seen.stopping or "requeue", True
        self._ranks.terminate(self._grace_seconds)

    def _cancel(self) -> None:
        if self._seen.stopping != "cancel":
            self._seen.stopping = "cancel"
            self._ranks.terminate(self._grace_seconds)

    def _end_of_time(self) -> None:
        self._time_is_up = True
        if self._seen.stopping is None:
            # To the ranks it is a pause: they save and stop.
            self._begin(TIME_LIMIT, told_as="pause", save=True, force=True, seconds=TIME_LIMIT_SAVE_SECONDS)

    def _begin(self, wish: str, *, told_as: str, save: bool, force: bool, seconds: float) -> None:
        self._seen.stopping, self._seen.forced, self._seen.saves = wish, force or not save, save
        self._seen.unsaved = ""
        self._stops += 1
        number = self._stops
        if self._ranks.ask_to_stop(told_as, save=save, force=force):
            self._loop.call_after(seconds, lambda: self._late(number))
        else:
            self._ranks.terminate(self._grace_seconds)

    def _hurry(self, *, save: bool, force: bool) -> None:
        if not save and self._seen.saves:
            self._seen.saves, self._seen.forced = False, True
            self._ranks.terminate(self._grace_seconds)
        elif force and not self._seen.forced:
            self._seen.forced = True
            self._ranks.ask_to_stop("pause", save=True, force=True)

    def _late(self, number: int) -> None:
        if number != self._stops or self._seen.stopping is None:
            return
        unsaved = self._seen.result is None and not self._seen.terminated
        if unsaved and self._seen.stopping == "pause" and not self._seen.forced:
            self._give_up(f"the ranks have not saved and stopped within {PAUSE_SAVE_SECONDS:g} s")
        else:
            self._ranks.terminate(self._grace_seconds)

    def _give_up(self, why: str) -> None:
        """A pause that would lose steps."""
        log.warning("the pause is given up: %s", why)
        self._seen.stopping, self._seen.gave_up = None, True
        self._stops += 1
        self._ranks.forget_stop()
        if not self._follows:
            self._withdrawing = True
            self._withdraw(why, self._withdrawn)
        if self._time_is_up:
            self._end_of_time()

    def _taken_back(self) -> None:
        """The first node has given the pause up."""
        if self._seen.stopping == "pause" and not self._seen.terminated:
            self._seen.stopping = None
            self._stops += 1
            self._ranks.forget_stop()

    def _withdrawn(self) -> None:
        self._withdrawing = False
