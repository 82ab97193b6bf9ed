"""The interface of a built-in trainer to its run; knows nothing of HTTP, leases, queues or Celery."""

import contextlib
import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from app.domain.spec.hyperparameters import rlhf
from trainyard._hooks.local_session import LocalSession
from trainyard.protocol import checkpoint_manifest as _manifest
from trainyard.protocol.channel import ChannelClosed
from trainyard.protocol.commands import AdapterNotLoaded, CheckpointNotSaved, ModelAnswered, Stop
from trainyard.protocol.messages import ADAPTER_NAME, MAX_BODY, FetchAdapter, Progress, Result
from trainyard.protocol.run_spec import RunSpec
from trainyard.protocol.session import Identity, Saved, Session, SupervisedSession
from workers.rank.role_environment import own_spec

__all__ = [
    "AdapterNotLoaded",
    "Ask",
    "CheckpointNotSaved",
    "NotAnswered",
    "Progress",
    "Result",
    "RunContext",
    "RunSpec",
    "Saved",
    "Stop",
    "local_run",
    "method_of",
    "supervised_run",
]

CHECKPOINT_FAILED = "CHECKPOINT_FAILED"
RUN_ENDS = 499  # NotAnswered.http_status: the run was cancelled meanwhile


class NotAnswered(Exception):
    """A model has not answered; ``http_status`` says why."""

    def __init__(self, message: str, http_status: int) -> None:
        super().__init__(message)
        self.message = message
        self.http_status = http_status


Ask = Callable[[str, Mapping[str, Any]], dict[str, Any]]  # `RunContext.ask`, or what answers in its place


def method_of(spec: RunSpec) -> str:
    """The training method of a run, as `rlhf.method_of` derives it."""
    return rlhf.method_of(spec.training_type, spec.hyperparameters)


class RunContext:
    """One rank's run. Reports of other ranks than 0 are dropped, so that all may run the same code."""

    def __init__(self, spec: RunSpec, session: Session) -> None:
        self.spec = spec
        self._session = session
        self._handover: CheckpointHandover | None = None

    @property
    def rank(self) -> int:
        return self._session.identity.rank

    @property
    def work_dir(self) -> Path:
        """Scratch directory of this attempt, shared by its ranks; on one file system with the checkpoints."""
        return _made(self.spec.run_dir / "work")

    @property
    def output_dir(self) -> Path:
        """Directory for the finished model."""
        return _made(self.spec.run_dir / "output")

    @property
    def stop(self) -> Stop | None:
        """The stop command that this rank has received, if any: agree with all ranks before acting."""
        return self._session.commands.stop

    @property
    def checkpoint_requests(self) -> int:
        """How often a checkpoint without a stop was requested; to be agreed on, too."""
        return self._session.commands.checkpoint_requests

    def resume_manifest(self) -> _manifest.Manifest | None:
        """The manifest of the checkpoint to resume from, None for a fresh start.

        Its files were verified when they were fetched. Raises CorruptCheckpoint.
        """
        return _manifest.read(self.spec.resume_checkpoint) if self.spec.resume_checkpoint else None

    def taken_over(self) -> _manifest.Manifest | None:
        """The manifest of the checkpoint to resume from if it is another job's, which had other settings."""
        manifest = self.resume_manifest()
        return manifest if manifest is not None and manifest.job_id != self.spec.job_id else None

    def phase(self, name: str) -> None:
        """TRAINING, CHECKPOINTING (only while training stands still), EVALUATING, SERVING or EXPORTING."""
        self._session.phase(name)

    def report_progress(self, progress: Progress) -> None:
        """Cheap enough for every step; sent at most every half second and always at the end."""
        self._session.progress(progress)

    def report_metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Never waits for the supervisor; NaN and infinities are reported as they are."""
        self._session.metrics(step, values)

    def note(self, reason: str, message: str, data: Mapping[str, Any] | None = None) -> None:
        """Add a line to the job's history; `reason` in capitals identifies it for programs."""
        self._session.note(reason, message, dict(data or {}))

    @contextlib.contextmanager
    def section(self, name: str, max_seconds: float | None = None) -> Iterator[None]:
        """Announce work that makes no steps and may take long, so that it is not taken for a hang."""
        self._session.section(name, max_seconds=max_seconds)
        try:
            yield
        finally:
            self._session.section(None)

    def commit_checkpoint(self, directory: Path, saved: Saved, write: Callable[[], None] = lambda: None) -> None:
        """Fill `directory` by `write` and commit it on a thread of its own; rank 0 only.

        One at a time. Raises the error of the previous one. When it fails, nothing of it is left.
        """
        self.settle()

        def complete() -> None:
            try:
                write()
                self._session.commit_checkpoint(directory, self._with_sources(saved))
            except BaseException:
                _manifest.discard(directory)
                raise

        self._handover = CheckpointHandover(complete)

    def _with_sources(self, saved: Saved) -> Saved:
        """A shard's position names data and model it was made of: a later attempt checks that these are the same."""
        if not self.spec.inference:
            return saved
        digests = [source.get("sha256") for source in self.spec.sources]
        known: dict[str, Any] = {"sources_sha256": digests} if all(digests) else {}
        known |= {"weights_sha256": self.spec.weights_sha256} if self.spec.weights_sha256 else {}
        return replace(saved, data_position={**saved.data_position, **known})

    def fetch_adapter(self, name: str, *, job_id: str, checkpoint_id: str | None = None) -> Path:
        """The directory of an adapter that a job of this project has trained; waits for it. On rank 0, any thread.

        ``name`` is that of the directory; the same one again gives the same files. Raises AdapterNotLoaded.
        """
        if not ADAPTER_NAME.fullmatch(name):
            raise AdapterNotLoaded(f"{name!r:.140} can't be an adapter's name")
        request = FetchAdapter(name=name, job_id=job_id, checkpoint_id=checkpoint_id)
        return Path(self._session.fetch_adapter(request))

    def ask(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a request for a model that the job's document names; waits for it. On any rank and thread.

        ``path`` and ``body`` are those of a request to the gateway, such as /v1/chat/completions. A gateway that can't
        answer for now is asked again for minutes. Raises NotAnswered.
        """
        asked = json.dumps(body)
        if len(asked) > MAX_BODY:
            raise NotAnswered(f"the request has {len(asked)} bytes; at most {MAX_BODY} are passed on", 413)
        answer = self._session.ask_model(path, asked)
        if answer is None:
            raise NotAnswered("the run ends", RUN_ENDS)
        return _answer_of(answer)

    def rest(self) -> None:
        """Wait until no checkpoint is being written, without raising its error."""
        if self._handover is not None:
            self._handover.join()

    def check(self) -> None:
        """Raise the error of the last checkpoint, if it has failed by now."""
        if self._handover is not None and self._handover.error is not None:
            self.settle()

    def settle(self) -> None:
        """Wait until the last checkpoint is handed over. Raises its error."""
        self.rest()
        handover, self._handover = self._handover, None
        if handover is not None and handover.error is not None:
            raise handover.error

    def excuse(self) -> None:
        """Wait for the last checkpoint; add its error to the history only, because the next one follows at once."""
        try:
            self.settle()
        except OSError as error:
            self.note(CHECKPOINT_FAILED, f"a checkpoint could not be written: {error}")

    def secure(self) -> str:
        """Wait until the last checkpoint is stored; returns why it is not, "" when it is."""
        try:
            self.settle()
            self._session.wait_stored()
        except ChannelClosed:
            raise
        except Exception as error:  # noqa: BLE001  whatever the error, the training can continue
            return f"{type(error).__name__}: {error}"
        return ""

    def is_given_up(self, stop: Stop) -> bool:
        """Whether the platform has given up a pause, as far as this rank knows: agree with all ranks before acting."""
        return stop.kind == "pause" and stop.number <= self._session.commands.given_up

    def forget_stop(self, stop: Stop) -> None:
        """Drop a stop that is not followed; another one may come. On every rank, before `pause_failed`."""
        self._session.commands.forget(stop)

    def pause_failed(self, stop: Stop, message: str) -> None:
        """Report that the training continues because the checkpoint of a pause is not stored."""
        self._session.pause_failed(stop.number, message)

    def finish(self, result: Result) -> None:
        """Report the result; the last call of a rank. Raises the error of its last checkpoint."""
        self.settle()
        self._session.finish(result)

    def fail(self, error_type: str, message: str, stack: str) -> None:
        """Report a failure; the process must exit non-zero afterwards."""
        self.rest()
        self._session.fail(error_type, message, stack)


class CheckpointHandover:
    """A checkpoint that is being written, hashed, synced to disk and offered by a thread of its own."""

    def __init__(self, work: Callable[[], object]) -> None:
        self.error: BaseException | None = None
        self._work = work
        self._thread = threading.Thread(target=self._run, name="checkpoint")
        self._thread.start()

    def join(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001  raised again where the run can end by it
            self.error = error


def supervised_run(spec_path: Path | str, *, on_orphaned: Callable[[], None]) -> RunContext:
    """The run of this process under a supervisor; `on_orphaned` is called when the supervisor has ended."""
    spec = own_spec(RunSpec.read(spec_path), os.environ)
    identity = Identity.of(spec, rank=int(os.environ.get("RANK", "0")))
    session = SupervisedSession(os.environ["TRAINYARD_CHANNEL"], identity, can_checkpoint=True, on_orphaned=on_orphaned)
    return RunContext(spec, session)


def local_run(spec: RunSpec) -> RunContext:
    """A run without a supervisor: prints its metrics and keeps its checkpoints in the run directory."""
    return RunContext(spec, LocalSession(Identity.of(spec, rank=int(os.environ.get("RANK", "0")))))


def _answer_of(answer: ModelAnswered) -> dict[str, Any]:
    """Raises NotAnswered."""
    try:
        body = json.loads(answer.body)
    except ValueError:
        body = None
    if isinstance(body, dict) and answer.status == 200:
        return body
    error = body.get("error") if isinstance(body, dict) else None
    message = error.get("message") if isinstance(error, dict) else None
    raise NotAnswered(str(message or answer.body[:200] or "it says nothing"), answer.status)


def _made(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    return directory
