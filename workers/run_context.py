"""What a built-in trainer is given and may call; it knows nothing of HTTP, leases, queues or Celery."""

import contextlib
import json
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainyard import _manifest
from trainyard._local_session import LocalSession
from trainyard._session import Identity, Progress, Result, Saved, Session, SupervisedSession
from trainyard._wishes import CheckpointNotSaved, Stop

__all__ = [
    "CheckpointNotSaved",
    "Progress",
    "Result",
    "RunContext",
    "RunSpec",
    "Saved",
    "Stop",
    "local_run",
    "supervised_run",
]

Document = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """The job as a rank needs it: everything resolved to local paths and typed values.

    `sources` stands in the order of data_config.sources: for each its `location` as submitted, its local `files`
    (`path`, `name`, `size_bytes`, `sha256`) and the `sha256` over their digests. Without it (tests, local runs)
    each of `data_paths` is a source of one file.
    """

    run_dir: Path
    framework: str
    training_type: str
    hyperparameters: Document
    model_path: str
    data_paths: tuple[str, ...]
    sources: tuple[Document, ...] = ()
    job_id: str = "local"
    attempt: int = 1
    tokenizer_path: str = ""
    training_config: Document = field(default_factory=dict)
    data_config: Document = field(default_factory=dict)
    output_config: Document = field(default_factory=dict)
    device_type: str = "cpu"
    world_size: int = 1
    threads_per_rank: int = 1
    resume_checkpoint: str = ""

    @classmethod
    def from_document(cls, document: Document) -> "RunSpec":
        """The spec.json of a supervisor; what a trainer has no use for is left out."""
        given = {name: document[name] for name in cls.__dataclass_fields__ if document.get(name) is not None}
        typed: dict[str, Any] = {
            "run_dir": Path(document["run_dir"]),
            "data_paths": tuple(document["data_paths"]),
            "sources": tuple(document.get("sources") or ()),
        }
        return cls(**{**given, **typed})

    def __post_init__(self) -> None:
        if not self.sources:
            files = ({"path": path, "name": Path(path).name} for path in self.data_paths)
            sources = tuple({"location": file["path"], "files": [file]} for file in files)
            object.__setattr__(self, "sources", sources)


class RunContext:
    """One rank's run. Reports of other ranks than 0 are dropped, so that all may run the same code."""

    def __init__(self, spec: RunSpec, session: Session) -> None:
        self.spec = spec
        self._session = session
        self._handover: Handover | None = None

    @property
    def rank(self) -> int:
        return self._session.identity.rank

    @property
    def work_dir(self) -> Path:
        """Scratch of this attempt, shared by its ranks; on one file system with the checkpoints."""
        return _made(self.spec.run_dir / "work")

    @property
    def output_dir(self) -> Path:
        """Where the finished model goes."""
        return _made(self.spec.run_dir / "output")

    @property
    def stop(self) -> Stop | None:
        """The wish to end at the next step boundary, as this rank has heard it: agree before acting."""
        return self._session.wishes.stop

    @property
    def checkpoint_requests(self) -> int:
        """How often a checkpoint without a stop was asked for; to be agreed on, too."""
        return self._session.wishes.checkpoint_requests

    def resume_manifest(self) -> _manifest.Manifest | None:
        """The manifest of the checkpoint to go on from, None for a fresh start.

        Its files were verified by whoever put them there. Raises CorruptCheckpoint.
        """
        return _manifest.read(self.spec.resume_checkpoint) if self.spec.resume_checkpoint else None

    def taken_over(self) -> _manifest.Manifest | None:
        """The manifest of the checkpoint to go on from if it is another job's: this one has settings of its own."""
        manifest = self.resume_manifest()
        return manifest if manifest is not None and manifest.job_id != self.spec.job_id else None

    def phase(self, name: str) -> None:
        """TRAINING, CHECKPOINTING (only while training stands still), EVALUATING or EXPORTING."""
        self._session.phase(name)

    def report_progress(self, progress: Progress) -> None:
        """Cheap enough for every step; sent at most every half second and always at the end."""
        self._session.progress(progress)

    def report_metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Never waits for the supervisor; NaN and infinities are reported as they are."""
        self._session.metrics(step, values)

    def commit_checkpoint(self, tmp_dir: Path, saved: Saved) -> None:
        """Complete what the ranks collected in `tmp_dir` and hand it over while the training goes on; rank 0 only.

        One at a time. Raises what went wrong with the one before.
        """
        self.settle()
        self._handover = Handover(lambda: self._session.commit_checkpoint(tmp_dir, saved))

    def settle(self) -> None:
        """Wait until the last checkpoint is handed over. Raises what went wrong with it."""
        handover, self._handover = self._handover, None
        if handover is not None:
            handover.wait()

    def finish(self, result: Result) -> None:
        """The last word of a rank that did its work. Raises what went wrong with its last checkpoint."""
        self.settle()
        self._session.finish(result)

    def fail(self, error_type: str, message: str, stack: str) -> None:
        """The last word of a rank that could not; it must exit non-zero afterwards."""
        with contextlib.suppress(Exception):  # there is one failure to report already
            self.settle()
        self._session.fail(error_type, message, stack)


class Handover:
    """A checkpoint that is being hashed, synced to disk and offered by a thread of its own."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="checkpoint")
        self._thread.start()

    def wait(self) -> None:
        """Until it is done. Raises what it raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001  raised again where the run can end by it
            self._error = error


def supervised_run(spec_path: Path | str, *, on_orphaned: Callable[[], None]) -> RunContext:
    """The run of this process under a supervisor; `on_orphaned` runs when that one is gone."""
    spec = RunSpec.from_document(json.loads(Path(spec_path).read_text(encoding="utf-8")))
    identity = _identity(spec, int(os.environ.get("RANK", "0")))
    session = SupervisedSession(os.environ["TRAINYARD_CHANNEL"], identity, can_checkpoint=True, on_orphaned=on_orphaned)
    return RunContext(spec, session)


def local_run(spec: RunSpec) -> RunContext:
    """The same for a plain script: prints its metrics, keeps its checkpoints in the run directory."""
    return RunContext(spec, LocalSession(_identity(spec, int(os.environ.get("RANK", "0")))))


def _identity(spec: RunSpec, rank: int) -> Identity:
    return Identity(
        run_dir=spec.run_dir,
        rank=rank,
        world_size=spec.world_size,
        job_id=spec.job_id,
        attempt=spec.attempt,
        framework=spec.framework,
        training_type=spec.training_type,
        threads_per_rank=spec.threads_per_rank,
    )


def _made(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    return directory
