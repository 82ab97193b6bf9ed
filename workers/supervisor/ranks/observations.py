"""What a supervisor observes of a running attempt and its outcome depends on."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from app.domain.spec.model import HaltAt
from trainyard.protocol.messages import Failure, RankExit, Result
from workers.attempt_failed import AttemptFailed

TIME_LIMIT = "time limit"
# Others need the devices: a sandbox that stays after a failure ends, and its attempt as it would have.
ENDS_KEPT = ("requeue", "preempt")


@dataclass(kw_only=True)
class Observations:
    """Collected while the attempt runs; `verdict.judge` derives the outcome from it."""

    custom: bool
    saved_before: bool = (
        False  # a script saved on request in an earlier attempt; this one may not have announced it yet
    )
    halts: HaltAt | None = None  # where the ranks stop by themselves, of the job's document
    can_save: bool = True  # False: the ranks store shards, and have nothing to save when they stop
    serves: bool = False  # it is the replica of a service
    answers: bool = False  # its endpoint is recorded
    stopping: str | None = None  # pause | cancel | requeue | preempt | drain | TIME_LIMIT: the stop in progress
    forced: bool = False  # the ranks must stop, saved or not
    saves: bool = True  # the ranks save before they stop
    unsaved: str = ""  # why saving failed the last time
    pause_given_up: bool = False  # the ranks may learn of it too late
    failure: AttemptFailed | None = None  # found by the supervisor: preparing, launching, a hang, a full disk
    broken_devices: str = ""  # GPU faults while the ranks ran
    disk_error: str = ""  # what could not be stored at the end because a disk was full
    detect_seconds: float | None = None  # from the first fault of a rank to its detection
    reported: list[Failure] = field(default_factory=list)
    exits: list[RankExit] = field(default_factory=list)
    result: Result | None = None
    kept: bool = False  # a rank has failed, and the sandbox stays for its user
    terminated: bool = False  # the supervisor sent SIGTERM: exit codes carry no information
    ends_since: float | None = None  # monotonic clock: a rank failed, or was requested to end
    has_connected: bool = False  # a rank has sent a message
    exit_code: int | None = None  # of the agent: 0 when every rank exited with 0
    exceeded_memory_mb: int = 0  # the job's own limit, if a kill was because of it
    out_of_memory_kills: int = 0  # by the kernel, shortly before the first rank broke
    last_lines: Mapping[int, Sequence[str]] = field(default_factory=dict)
    time_limit_seconds: int | None = None
    instances: Mapping[int, str] = field(default_factory=dict)  # by rank of a job with roles
    scripts: Collection[int] = ()  # ranks of scripts beside a built-in trainer

    @property
    def broke(self) -> bool:
        """Whether a rank has failed: the agent is ending the others."""
        return any(gone.exit_code != 0 for gone in self.exits)

    def named(self, rank: int) -> str:
        """The rank as messages name it: with the instance of the role that it belongs to."""
        return f"rank {rank} ({self.instances[rank]})" if rank in self.instances else f"rank {rank}"

    def is_script(self, rank: int) -> bool:
        """Whether the rank's program is the user's."""
        return self.custom or rank in self.scripts

    def forget_failures(self, ranks: Collection[int]) -> None:
        """These ranks were started again: what they have said about their end explains nothing any more."""
        self.reported = [each for each in self.reported if each.rank not in ranks]
        if not self.reported and not self.broke and self.stopping is None and not self.terminated:
            self.ends_since = None

    def ends(self, at: float) -> None:
        """Set ``ends_since``, the first time only."""
        self.ends_since = at if self.ends_since is None else self.ends_since
