"""Applies control requests (cancel, pause, requeue, preempt, drain, time limit, checkpoint) to a running attempt."""

import logging
import signal
import threading
from collections.abc import Callable

from app.host import processes
from app.services.attempts.leases import ControlRequests
from trainyard.protocol.commands import DRAIN
from workers.supervisor.control.rank_group import RankGroup
from workers.supervisor.ranks.event_loop import EventLoop
from workers.supervisor.ranks.observations import ENDS_KEPT, TIME_LIMIT, Observations

log = logging.getLogger(__name__)

TIME_LIMIT_SAVE_SECONDS = 30.0
# A draining node and a stopping `trainyard up` wait 30 s for their jobs.
REQUEUE_SAVE_SECONDS = 25.0
# A more urgent job waits for the devices; no machine goes down.
PREEMPT_SAVE_SECONDS = 120.0
# Long enough for the checkpoint of a large model after a long step. After it, a pause that is not forced is given up;
# any other stop ends the ranks.
PAUSE_SAVE_SECONDS = 600.0
SAVE_SECONDS = {"pause": PAUSE_SAVE_SECONDS, "requeue": REQUEUE_SAVE_SECONDS, "preempt": PREEMPT_SAVE_SECONDS}
# Ranks that need not save only finish their step.
UNSAVED_STOP_SECONDS = 10.0
# A replica finishes the answers that it has begun, for 60 s when it drains, and for 25 s before others get its devices;
# a moment more for its exit.
ANSWER_SECONDS = {DRAIN: 65.0, "requeue": 28.0, "preempt": 28.0, "pause": 28.0}


class StopController:
    """All methods run on the loop's thread, except those for signals, which run on the main thread.

    ``withdraw`` removes a pause request that can't be saved for, and calls back on the loop when it is removed.
    ``follows``: this is not the first of several nodes, whose supervisor alone knows whether a pause was saved.
    ``checkpoints_asked``: requests for a checkpoint that were passed on before; None: those read first are old.
    Ranks that can't save have what they have finished stored already; a stop drops the rest.
    """

    def __init__(
        self,
        loop: EventLoop,
        observed: Observations,
        ranks: RankGroup,
        *,
        grace_seconds: float,
        withdraw: Callable[[str, Callable[[], None]], None],
        checkpoints_asked: int | None = None,
        follows: bool = False,
    ) -> None:
        self._follows = follows
        self._loop = loop
        self._observed = observed
        self._ranks = ranks
        self._grace_seconds = grace_seconds
        self._withdraw = withdraw
        self._withdrawing = False
        self._stops = 0
        self._time_is_up = False
        self.checkpoints_asked = checkpoints_asked
        self.machine_stops = False  # SIGTERM was received

    def apply(self, requests: ControlRequests) -> None:
        """Apply the requests that a lease renewal has read."""
        if self.checkpoints_asked is None:
            self.checkpoints_asked = requests.checkpoint_requests
        kind = requests.requested
        if kind == "cancel":
            self._cancel()
        elif kind == "pause" and not self._withdrawing:
            self.stop(kind, save=requests.pause_saves, force=requests.pause_force)
        elif kind in ("requeue", "preempt"):
            self._resume_if_stopped()  # for these never replace a pause: it was taken back just before
            self.stop(kind, force=True)
        elif kind == DRAIN:
            self._drain()
        elif kind is None:
            self._resume_if_stopped()
        while self.checkpoints_asked < requests.checkpoint_requests:
            self.checkpoints_asked += 1
            if self._observed.can_save:
                self._ranks.ask_for_checkpoint()

    def stop(self, kind: str, *, save: bool = True, force: bool = False) -> None:
        """Ask the ranks to save and stop within a time limit; unsaved steps are repeated.

        A repeated pause may have become more urgent; any other kind is too late for a stop in progress. A sandbox that
        stays after a failure is ended for others, and its job has failed.
        """
        if self._observed.kept and kind in ENDS_KEPT:
            return
        save, force = save and self._observed.can_save, force or not self._observed.can_save
        if self._observed.stopping is None:
            seconds = SAVE_SECONDS[kind] if save else self._unsaved_seconds(kind)
            self._begin(kind, sent_as=kind, save=save, force=force, seconds=seconds)
        elif self._observed.stopping == kind == "pause":
            self._escalate(save=save, force=force)

    def _unsaved_seconds(self, kind: str) -> float:
        return ANSWER_SECONDS.get(kind, UNSAVED_STOP_SECONDS) if self._observed.serves else UNSAVED_STOP_SECONDS

    def _drain(self) -> None:
        """Let a replica answer what it has begun; one that does not answer yet has nothing to finish."""
        if self._observed.answers:
            self.stop(DRAIN, force=True)
        elif self._observed.stopping is None:
            self._observed.stopping, self._observed.forced = DRAIN, True
            self._ranks.terminate(self._grace_seconds)

    def limit_time(self, seconds: float) -> None:
        """Limit the remaining run time of the job."""
        self._loop.call_after(max(0.0, seconds), self._end_of_time)

    def pause_failed(self, message: str) -> None:
        """The ranks could not save for the pause, and continue."""
        if self._observed.stopping is None or self._observed.stopping == "cancel":
            return
        self._observed.unsaved = message
        if self._observed.terminated:
            return  # they end anyway
        if self._observed.forced:
            self._ranks.terminate(self._grace_seconds)  # they did not know yet that the stop is forced
        else:
            self._give_up(message)

    def listen_to_signals(self, nudge: Callable[[], None]) -> None:
        """SIGUSR1: read the control requests now. SIGTERM: the machine goes down."""

        # A handler may interrupt anything, so both only schedule a call on the loop.
        def terminated(_number: int, _frame: object) -> None:
            self.machine_stops = True
            self._loop.call(self._stop_now)

        signal.signal(signal.SIGUSR1, lambda _number, _frame: self._loop.call(nudge))
        signal.signal(signal.SIGTERM, terminated)
        processes.unblock_signal(signal.SIGTERM)  # an earlier attempt's controller may hold it

    def hold_signals(self) -> None:
        """Ignore nudges and leave SIGTERM pending until the next attempt's controller listens."""
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        processes.block_signal(signal.SIGTERM)
        if self.machine_stops:  # asked once no more can arrive here
            signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

    def _stop_now(self) -> None:
        """Stop without saving: the job resumes elsewhere from its last checkpoint."""
        if not self._observed.kept:
            self._observed.stopping, self._observed.forced = self._observed.stopping or "requeue", True
        self._ranks.terminate(self._grace_seconds)

    def _cancel(self) -> None:
        if self._observed.stopping != "cancel":
            self._observed.stopping = "cancel"
            self._ranks.terminate(self._grace_seconds)

    def _end_of_time(self) -> None:
        self._time_is_up = True
        if self._observed.stopping is None:
            # The ranks receive a pause: they save and stop.
            seconds = TIME_LIMIT_SAVE_SECONDS if self._observed.can_save else self._unsaved_seconds("pause")
            self._begin(TIME_LIMIT, sent_as="pause", save=self._observed.can_save, force=True, seconds=seconds)

    def _begin(self, kind: str, *, sent_as: str, save: bool, force: bool, seconds: float) -> None:
        self._observed.stopping, self._observed.forced, self._observed.saves = kind, force or not save, save
        self._observed.unsaved = ""
        self._stops += 1
        number = self._stops
        if self._ranks.ask_to_stop(sent_as, save=save, force=force):
            self._loop.call_after(seconds, lambda: self._on_timeout(number))
        else:
            self._ranks.terminate(self._grace_seconds)

    def _escalate(self, *, save: bool, force: bool) -> None:
        if not save and self._observed.saves:
            self._observed.saves, self._observed.forced = False, True
            self._ranks.terminate(self._grace_seconds)
        elif force and not self._observed.forced:
            self._observed.forced = True
            self._ranks.ask_to_stop("pause", save=True, force=True)

    def _on_timeout(self, number: int) -> None:
        if number != self._stops or self._observed.stopping is None:
            return
        unsaved = self._observed.result is None and not self._observed.terminated
        if unsaved and self._observed.stopping == "pause" and not self._observed.forced:
            self._give_up(f"the ranks have not saved and stopped within {PAUSE_SAVE_SECONDS:g} s")
        else:
            self._ranks.terminate(self._grace_seconds)

    def _give_up(self, why: str) -> None:
        """Give up a pause that would lose steps."""
        log.warning("the pause is given up: %s", why)
        self._observed.stopping, self._observed.pause_given_up = None, True
        self._stops += 1
        self._ranks.forget_stop()
        if not self._follows:
            self._withdrawing = True
            self._withdraw(why, self._on_withdrawn)
        if self._time_is_up:
            self._end_of_time()

    def _resume_if_stopped(self) -> None:
        """Continue when a user has taken the pause back, or, on other nodes, when the first one has given it up.

        Ranks that do not run yet, or have stopped already, are left alone: the end of the attempt requeues the job.
        """
        if self._observed.stopping != "pause" or self._observed.terminated:
            return
        run = bool(self._ranks.root_pid) and not self._ranks.ended and self._observed.result is None
        if not run and not self._follows:
            return
        self._observed.stopping, self._observed.pause_given_up = None, not self._follows
        self._stops += 1
        self._ranks.forget_stop()
        if self._time_is_up and not self._follows:
            self._end_of_time()

    def _on_withdrawn(self) -> None:
        self._withdrawing = False
