"""Which instances of roles wait, run, start again or are stopped on this node: decides, and lets the agent act."""

import time
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from trainyard.protocol.channel import Message
from trainyard.protocol.role_instance import RoleInstance
from trainyard.protocol.role_messages import (
    RELEASE,
    ROLES_STARTED,
    InstanceEnded,
    InstanceStarted,
    RoleReport,
    TaskRestarted,
    WorkEnded,
)
from trainyard.protocol.run_spec import RunSpec

AGAIN_SECONDS = 1.0  # after a SIGKILL; one that hangs in the kernel is not killed at once
Key = tuple[str, int]


@dataclass(frozen=True, kw_only=True)
class Actions:
    """What the agent does for it. ``start`` starts all ranks of an instance, ``kill`` ends also what they have left."""

    start: Callable[[RoleInstance], None]
    terminate: Callable[[Collection[int]], None]
    kill: Callable[[RoleInstance], None]
    tell: Callable[[RoleReport], None]


@dataclass(frozen=True, kw_only=True)
class _Fall:
    """An instance is taken down to be started again: why, and when its other ranks are killed."""

    rank: int
    exit_code: int
    kill_at: float


class RoleRanks:
    """The instances of one part of an attempt. ``teardown_seconds``: for the other ranks of one that failed."""

    def __init__(self, spec: RunSpec, actions: Actions, *, teardown_seconds: float) -> None:
        self._instances = spec.instances
        self._act = actions
        self._teardown_seconds = teardown_seconds
        self._waiting = list(spec.instances)
        self._started: set[Key] = set()
        self._started_roles: set[str] = set()
        self._live: dict[Key, set[int]] = {}
        self._codes: dict[Key, int] = {}  # of the first rank that failed
        self._restarts: Counter[Key] = Counter()
        self._falling: dict[Key, _Fall] = {}
        self._of_rank = {rank: each for each in spec.instances for rank in each.global_ranks}
        self._told_end = False
        self._kill_sidecars_at: float | None = None
        # The first node speaks for the attempt until its work has ended on all.
        self._stays = spec.nodes > 1 and spec.node_rank == 0
        self._stopping = False

    def begin(self) -> None:
        """Start the instances that wait for no role."""
        self._start_ready()
        self._tell_end()

    def apply(self, message: Message) -> None:
        """Follow the supervisor; other messages are ignored."""
        if message["type"] == ROLES_STARTED:
            self._started_roles.update(message["roles"])
            self._start_ready()
        elif message["type"] == RELEASE:
            self._release(float(message["grace_seconds"]))

    def stop(self) -> None:
        """All ranks are being ended: start none any more."""
        self._stopping, self._stays = True, False
        self._waiting.clear()
        self._falling.clear()

    @property
    def is_busy(self) -> bool:
        """Whether the agent must stay, even without a live rank."""
        return bool(self._waiting or self._falling or self._stays)

    def took(self, rank: int, code: int) -> bool:
        """Note a rank's end; True if it is no end for the job: of a sidecar that was stopped, or is to start again."""
        instance = self._of_rank[rank]
        key = (instance.role, instance.index)
        live = self._live.setdefault(key, set())
        live.discard(rank)
        took = self._is_no_end(instance, key, rank, code)
        if not live and key not in self._falling:
            code = self._codes.get(key, 0)
            self._act.tell(InstanceEnded(role=instance.role, index=instance.index, exit_code=code))
            self._tell_end()
        return took

    def _is_no_end(self, instance: RoleInstance, key: Key, rank: int, code: int) -> bool:
        if key in self._falling:
            return True
        if code != 0:
            self._codes.setdefault(key, 128 - code if code < 0 else code)
        if code == 0 or self._stopping:
            return False
        if instance.sidecar and self._kill_sidecars_at is not None:
            return True
        if self._restarts[key] >= instance.max_restarts:
            return False
        self._restarts[key] += 1
        due = time.monotonic() + self._teardown_seconds
        self._falling[key] = _Fall(rank=rank, exit_code=self._codes.pop(key), kill_at=due)
        self._act.terminate(self._live[key])
        return True

    def work(self) -> None:
        """Do what is due: kill ranks whose time is over, and start instances again."""
        now = time.monotonic()
        for key, fall in list(self._falling.items()):
            instance = self._of_rank[fall.rank]
            if self._live[key] and now < fall.kill_at:
                continue
            self._act.kill(instance)
            if self._live[key]:  # they are collected first
                self._falling[key] = replace(fall, kill_at=now + AGAIN_SECONDS)
            else:
                self._start_again(key, instance, fall)
        if self._kill_sidecars_at is not None and now >= self._kill_sidecars_at:
            self._kill_sidecars_at = now + AGAIN_SECONDS
            for each in self._instances:
                if each.sidecar and self._live.get((each.role, each.index)):
                    self._act.kill(each)

    def seconds_left(self) -> float | None:
        """Until something is due; None: nothing is."""
        due = [fall.kill_at if self._live[key] else 0.0 for key, fall in self._falling.items()]
        due += [self._kill_sidecars_at] if self._kill_sidecars_at is not None and any(self._live.values()) else []
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _start_again(self, key: Key, instance: RoleInstance, fall: _Fall) -> None:
        del self._falling[key]
        self._act.tell(
            TaskRestarted(
                role=instance.role,
                index=instance.index,
                rank=fall.rank,
                exit_code=fall.exit_code,
                restarts=self._restarts[key],
            )
        )
        self._live[key] = set(instance.global_ranks)
        self._act.start(instance)

    def _start_ready(self) -> None:
        """Until nothing more can start: one that starts may be what others wait for."""
        while ready := [each for each in self._waiting if self._started_roles >= set(each.depends_on)]:
            for each in ready:
                if self._stopping:  # one could not be started
                    return
                self._waiting.remove(each)
                self._live[each.role, each.index] = set(each.global_ranks)
                self._act.start(each)
                self._started.add((each.role, each.index))
                self._act.tell(InstanceStarted(role=each.role, index=each.index))
                if all((each.role, index) in self._started for index in range(each.count)):
                    self._started_roles.add(each.role)

    def _tell_end(self) -> None:
        """Once, when what is no sidecar has ended well here."""
        work = [(each.role, each.index) for each in self._instances if not each.sidecar]
        waiting = {(each.role, each.index) for each in self._waiting}
        if self._told_end or self._stopping or any(self._is_open(key, waiting) for key in work):
            return
        self._told_end = True
        self._act.tell(WorkEnded())

    def _is_open(self, key: Key, waiting: Collection[Key]) -> bool:
        return key in waiting or key in self._falling or bool(self._live.get(key)) or self._codes.get(key, 0) != 0

    def _release(self, grace_seconds: float) -> None:
        self._stays = False
        self._waiting = [each for each in self._waiting if not each.sidecar]
        self._kill_sidecars_at = time.monotonic() + grace_seconds
        for each in self._instances:
            key = (each.role, each.index)
            if each.sidecar:
                self._falling.pop(key, None)
                self._act.terminate(self._live.get(key, set()))
