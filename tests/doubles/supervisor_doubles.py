"""Doubles for parts of a supervisor that would take minutes, and assemblies that hand them in."""

import os
import socket
import threading
from dataclasses import dataclass, replace

from app.storage.storage import Storage
from tests.builders.run_specs import make_run_spec
from workers.attempt_failed import AttemptFailed
from workers.prepare.inputs.resume_point import StartPoint
from workers.prepare.prepare import PreparedAttempt
from workers.run_dir.layout import RunDirectory
from workers.sandbox.control_groups import GroupLimits, Hierarchies
from workers.sandbox.launcher import LaunchPlan
from workers.sandbox.sandbox import ProcessGroup
from workers.sandbox.spec import FilesystemView, SandboxSpec
from workers.supervisor.assembly import Assembly
from workers.supervisor.control.rank_group import RankGroup
from workers.supervisor.ranks.event_loop import EventLoop
from workers.supervisor.ranks.observations import Observations
from workers.supervisor.recording.checkpoint_store import CheckpointStore


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
        self.calls.append("ranks are asked to continue")

    def terminate(self, grace_seconds):
        self.calls.append("ranks are terminated")


class EndedAgent:
    """A launched attempt whose agent speaks over ``control``; it can't be killed."""

    log_fds = ()
    exceeded_memory_mb = 0

    def __init__(self, control):
        self.control = control
        self.process = self
        self.pid = os.getpid()
        self.kills = 0  # of everything
        self.agent_kills = 0

    def wait(self):
        return -9

    def kill(self, *, root_pid=None):
        if root_pid is None:
            self.agent_kills += 1
        else:
            self.kills += 1
        return False


class WithDoubles(Assembly):
    """Nothing can be prepared; ranks and renewal are doubles, or the ranks real ones that are never launched."""

    ranks = None

    def __init__(self, *arguments, part):
        super().__init__(*arguments)
        self.part = part

    def prepare(self, recorders, *, is_over):
        raise AttemptFailed("INTERNAL", "nothing is prepared")

    def renewal(self, *, on_requests, on_lost):
        return self.part

    def rank_group(self, recorders, *, on_training, on_pause_failed):
        return self.part


class WithRealRanks(WithDoubles):
    def rank_group(self, recorders, *, on_training, on_pause_failed):
        return Assembly.rank_group(self, recorders, on_training=on_training, on_pause_failed=on_pause_failed)


class StuckCheckpoints(CheckpointStore):
    """One is being written to a storage that does not answer."""

    def __init__(self):
        self.newest_step = 0

    def drain(self, seconds=None):
        threading.Event().wait(seconds)
        return False

    def close(self):
        pass


class WithStuckCheckpoints(WithRealRanks):
    def recorders(self, disk, *, answer, on_lost):
        recorders = super().recorders(disk, answer=answer, on_lost=on_lost)
        recorders.checkpoints.close()
        return replace(recorders, checkpoints=StuckCheckpoints())


class StuckStorage(Storage):
    """Its writes wait until it is back."""

    def __init__(self, url):
        super().__init__(url)
        self.is_back = threading.Event()

    def write(self, *_):
        self.is_back.wait(20)


@dataclass
class Agent:
    ranks: RankGroup
    loop: EventLoop
    observations: Observations
    launched: EndedAgent
    control: socket.socket
    kills: list[int]
    pauses_failed: list[str]
    run: RunDirectory


def prepared(assembly):
    run = assembly.context.run
    plan = LaunchPlan(
        spec=make_run_spec(run_dir=run.path),
        spec_path=run.spec,
        confinement=SandboxSpec(view=FilesystemView(run_dir=run.path, data_dir=run.path)),
        sandbox=ProcessGroup(),
        job_environment={},
        limits=GroupLimits(),
        groups=Hierarchies({}, 1),
    )
    return PreparedAttempt(plan=plan, start=StartPoint(path=None, step=0, checkpoint_id=None, rejected=()))
