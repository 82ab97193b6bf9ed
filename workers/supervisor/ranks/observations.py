"""What a supervisor observes of a running attempt, as far as it decides the outcome."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from trainyard.protocol.messages import Failure, RankExit, Result
from workers.attempt_failed import AttemptFailed

TIME_LIMIT = "time limit"


@dataclass(kw_only=True)
class Sightings:
    """Everything about an attempt that decides its outcome."""

    custom: bool
    said_to_save: bool = False  # a script, in an earlier attempt: this one has only not come to it yet
    stopping: str | None = None  # pause | cancel | requeue | preempt | TIME_LIMIT: what we asked the ranks for
    forced: bool = False  # they must stop, saved or not
    saves: bool = True  # they are to save before
    unsaved: str = ""  # why they could not, the last time
    gave_up: bool = False  # a pause, of which the ranks may hear too late
    failure: AttemptFailed | None = None  # found by us: in preparing and launching, a hang, a full disk
    broken_devices: str = ""  # what broke of the GPUs while the ranks ran
    no_room: str = ""  # what could not be stored because a disk is full, at the end
    detect_seconds: float | None = None  # from the first fault of a rank until we knew
    said: list[Failure] = field(default_factory=list)
    exits: list[RankExit] = field(default_factory=list)
    result: Result | None = None
    terminated: bool = False  # we sent the ranks SIGTERM: how they exited says nothing
    ends_since: float | None = None  # by the monotonic clock: since a rank broke or said so, or we told them to end
    spoke: bool = False  # on the channel, at all
    exit_code: int | None = None  # of the agent: 0 when every rank exited with 0
    out_of_memory_kills: int = 0  # by the kernel, shortly before the first rank broke
    last_lines: Mapping[int, Sequence[str]] = field(default_factory=dict)
    time_limit_seconds: int | None = None

    @property
    def broke(self) -> bool:
        """Whether a rank has broken: the others here are on their way out."""
        return any(gone.exit_code != 0 for gone in self.exits)

    def ends(self, at: float) -> None:
        """The first time counts."""
        self.ends_since = at if self.ends_since is None else self.ends_since
