"""What the processes of one attempt get of this machine, whichever engine confines them."""

from dataclasses import dataclass, field
from pathlib import Path

from workers.run_dir.layout import OVERLAY
from workers.sandbox.own_user import OwnUser

FILES_MODE = "0400"  # of files of a document, which may be secrets


@dataclass(frozen=True, kw_only=True)
class PlacedPath:
    """A path of the job's choice in the sandbox, and what lies there."""

    target: Path
    source: Path | None = None  # a resolved file or directory; None: a file or directory in memory
    writable: bool = False
    size_mb: int = 0  # of a directory in memory; 0: half of the machine's memory
    files: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # (name, text): such a directory is read-only
    text: str | None = field(default=None, repr=False)  # of a file in place of a directory
    mode: str = FILES_MODE  # of these files


@dataclass(frozen=True, kw_only=True)
class Account:
    """The user as whom an attempt's processes see themselves, whichever host user they have."""

    name: str = "job"
    uid: int = 1000
    gid: int = 1000


@dataclass(frozen=True, kw_only=True)
class ImageRoot:
    """The root file system of a container image, which jobs share."""

    directory: Path
    read_only: bool = False


@dataclass(frozen=True, kw_only=True)
class FilesystemView:
    """The part of the file system that an attempt needs, besides the machine's programs."""

    run_dir: Path
    data_dir: Path  # hidden, except for run_dir and readable paths
    code: Path | None = None  # a user directory, mounted at run_dir/code
    readable: tuple[Path, ...] = ()  # model, data, resume checkpoint
    software: tuple[Path, ...] = ()  # directories of programs that the operator has named
    libraries: tuple[Path, ...] = ()  # paths named by inherited environment variables
    protected: tuple[Path, ...] = ()  # files in run_dir that are read-only for the ranks
    hidden: tuple[Path, ...] = ()  # other paths of ours that no job may see: directories, or single files
    devices: tuple[Path, ...] = ()  # files of the job's GPUs, and those that all programs on GPUs open
    placements: tuple[PlacedPath, ...] = ()
    image: ImageRoot | None = None  # in place of the machine's programs
    claims: tuple[Path, ...] = ()  # resolved directories that other jobs may write to while this one is started

    def claim_around(self, path: Path) -> Path | None:
        """The claim that a resolved path lies in; None for a claim itself, which no job can exchange."""
        return next((claim for claim in self.claims if claim in path.parents), None)

    @property
    def shown(self) -> tuple[Path, ...]:
        """What is mounted of `readable`: in place of a path in a claim the claim, which no job can exchange."""
        return tuple(dict.fromkeys(self.claim_around(path) or path for path in self.readable))

    @property
    def written_claims(self) -> list[Path]:
        """The claims, or parts of them, that the attempt may write to."""
        written = [placement.source for placement in self.placements if placement.source and placement.writable]
        return [source for source in written if source in self.claims or self.claim_around(source) is not None]

    @property
    def code_source(self) -> Path | None:
        """The code directory, with links resolved where no job can put one."""
        return self.code if self.code is None or self.claim_around(self.code) else self.code.resolve()

    @property
    def code_dir(self) -> Path:
        return self.run_dir / "code"

    @property
    def temporary_dir(self) -> Path:
        return self.run_dir / "tmp"

    @property
    def overlay_dir(self) -> Path:
        """What the job writes outside of its own directories where its root is an image's; no job sees it."""
        return self.run_dir / OVERLAY


@dataclass(frozen=True, kw_only=True)
class SandboxSpec:
    """What a sandbox has to provide for the processes of one attempt on this node."""

    view: FilesystemView
    joined: tuple[Path, ...] = ()  # files of control groups, into which a process writes 0 to join
    shm_mb: int = 0  # size of /dev/shm; 0: half of the machine's memory
    account: Account = Account()
    user: OwnUser | None = field(default=None, compare=False)  # of the machine; None: the worker's
    own_network: bool = True  # loopback only, shared by the ranks of this node; else the machine's network
    must_be_guarded: bool = False  # it doesn't start in the machine's network where it would reach others

    @property
    def plain_modes(self) -> bool:
        """Whether its processes make no file set-user-ID or set-group-ID, not even one that another job has opened:
        sockets in claims, and those of the machine's network, pass descriptors from job to job.
        """
        return bool(self.view.claims) or not self.own_network
