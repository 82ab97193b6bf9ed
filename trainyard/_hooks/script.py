"""Binds a run to the script's process: where it starts and how it ends."""

import atexit
import os
import signal
import sys
import threading
import traceback
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from trainyard._hooks.agreement import Agreement
from trainyard._hooks.failures import error_type
from trainyard._hooks.halts import HaltMissed
from trainyard._hooks.local_session import LocalSession
from trainyard._hooks.run import Run
from trainyard.protocol.channel import ChannelClosed
from trainyard.protocol.commands import CheckpointNotSaved, Stop
from trainyard.protocol.run_spec import RunSpec
from trainyard.protocol.session import Identity, Session, SupervisedSession

LOCAL_RUN_DIR = "trainyard-run"
_SIGTERM_EXIT_CODE = 128 + signal.SIGTERM


def start(defaults: Mapping[str, Any], *, can_checkpoint: bool) -> Run:
    """The run of this process, which reports automatically when the process ends."""
    channel = os.environ.get("TRAINYARD_CHANNEL")
    local_spec = RunSpec(run_dir=Path(LOCAL_RUN_DIR).absolute(), framework="CUSTOM", training_type="")
    spec = RunSpec.read(os.environ["TRAINYARD_SPEC"]) if channel else local_spec
    rank, world_size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if spec.instances:  # these two are of the role; reports are of rank 0 of all
        rank, world_size = int(os.environ["TRAINYARD_RANK"]), spec.world_size
        if rank in spec.ranks_of_scripts:
            spec = spec.beside_a_trainer()
    identity = Identity.of(spec, rank=rank, world_size=world_size)
    agreement = None
    if channel:
        leads_role = any((each.first_rank, each.index) == (rank, 0) for each in spec.instances)
        session: Session = SupervisedSession(channel, identity, can_checkpoint=can_checkpoint, leads_role=leads_role)
        session.phase("TRAINING")
        agreement = _agreement(session) if spec.agree_on_stops else None
    else:
        session = local = LocalSession(identity)
        if newest := local.newest_checkpoint():
            spec = replace(spec, resume_checkpoint=str(newest[0]), resume_step=newest[1].step)
    run = Run(session, _with_defaults(spec, defaults), agreement)
    _ExitReporter(run, session, supervised=bool(channel)).watch()
    return run


def _agreement(session: Session) -> Agreement | None:
    identity = session.identity
    # ranks agree through files in the run directory
    if identity.world_size == 1 or int(os.environ.get("NNODES", "1")) > 1:
        return None

    def given_up() -> bool:
        stop = session.commands.stop
        return stop is not None and stop.kind == "cancel"

    return Agreement(identity.run_dir / "work" / "agreement", identity.rank, given_up)


def _with_defaults(spec: RunSpec, defaults: Mapping[str, Any]) -> RunSpec:
    return replace(
        spec,
        hyperparameters={**defaults["hyperparameters"], **spec.hyperparameters},
        data_paths=spec.data_paths or tuple(defaults["data_paths"]),
        model_path=spec.model_path or defaults["model_path"],
    )


class _ExitReporter:
    """Reports exactly once how this process ends: normally, by an exception or by SIGTERM."""

    def __init__(self, run: Run, session: Session, *, supervised: bool) -> None:
        self._run = run
        self._session = session
        self._supervised = supervised
        self._pid = os.getpid()
        self._reported = False
        self._previous_hook = sys.excepthook

    def watch(self) -> None:
        sys.excepthook = self._on_exception
        atexit.register(self._on_exit)
        # Python allows handlers only in the main thread; an existing handler of the script stays.
        in_main = threading.current_thread() is threading.main_thread()
        if in_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._on_sigterm)

    def _on_exit(self) -> None:
        if not self._first():
            return
        try:
            self._run.finish()
        except ChannelClosed:
            return
        except HaltMissed as error:
            self._fail_at_exit(error_type(error), str(error))
        except CheckpointNotSaved as error:
            self._fail_at_exit(error.error_type, f"the checkpoint of this stop could not be stored: {error}")

    def _fail_at_exit(self, error_type: str, message: str) -> None:
        self._fail(error_type, message, "")
        # An exception can no longer change the exit code at this point.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)

    def _on_exception(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if self._first():
            stack = "".join(traceback.format_exception(kind, error, trace))
            self._fail(error_type(error), f"{kind.__name__}: {error}", stack)
        self._previous_hook(kind, error, trace)

    def _on_sigterm(self, _number: int, frame: FrameType | None) -> None:
        if not self._supervised and self._session.commands.stop is None:
            # SIGINT in a terminal means pause; a second one ends the script at once.
            self._session.commands.apply(Stop("pause", save_checkpoint=True, force=True))
            return
        if self._first():
            stack = "".join(traceback.format_stack(frame))
            self._fail("RANK_KILLED", "ended by SIGTERM", stack)
        # Unwinds the script, so that an unfinished checkpoint is removed.
        raise SystemExit(_SIGTERM_EXIT_CODE)

    def _fail(self, error_type: str, message: str, stack: str) -> None:
        try:
            self._run.fail(error_type, message, stack)
        except ChannelClosed:
            return

    def _first(self) -> bool:
        """True once, and never in a child forked by the script."""
        first = not self._reported and os.getpid() == self._pid
        self._reported = True
        return first
