"""Replacement for a supervised session when a script runs in a terminal."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainyard.protocol import checkpoint_manifest
from trainyard.protocol.commands import AdapterNotLoaded, ModelAnswered, ReceivedCommands
from trainyard.protocol.messages import FetchAdapter, Progress, Result
from trainyard.protocol.session import Identity, Saved, manifest_for

_CHECKPOINTS_KEPT = 3


class LocalSession:
    """Used without a supervisor: prints, and stores checkpoints under the run directory."""

    def __init__(self, identity: Identity) -> None:
        self.identity = identity
        self.commands = ReceivedCommands()
        self._leads = identity.rank == 0

    def declare(self, *, can_checkpoint: bool) -> None:
        """No supervisor to inform."""

    def phase(self, name: str) -> None:
        """No supervisor to inform."""

    def progress(self, progress: Progress) -> None:
        """Not printed: metrics suffice."""

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        if self._leads:
            pairs = "  ".join(f"{name}={value:.6g}" for name, value in values.items())
            self._print(f"step {step}  {pairs}")

    def note(self, reason: str, message: str, data: Mapping[str, Any]) -> None:
        if self._leads:
            self._print(" ".join([f"{reason}: {message}", *(f"{name}={value}" for name, value in data.items())]))

    def section(self, name: str | None, *, max_seconds: float | None = None) -> None:
        """No watchdog."""

    def wait_stored(self) -> None:
        """Local checkpoints are stored at once."""

    def fetch_adapter(self, request: FetchAdapter) -> str:
        raise AdapterNotLoaded(f"a local run can't fetch the adapter of job {request.job_id}")

    def ask_model(self, path: str, body: str) -> ModelAnswered | None:
        del body
        message = f"a local run has no gateway to send {path} to"
        return ModelAnswered(number=0, status=503, body=json.dumps({"error": {"message": message}}))

    def pause_failed(self, number: int, message: str) -> None:
        """Local runs have no pause requests."""

    def commit_checkpoint(self, tmp_dir: Path, saved: Saved) -> str:
        final_dir = self._checkpoints() / f"step-{saved.step:08d}"
        if final_dir.exists():
            checkpoint_manifest.discard(final_dir)
        checkpoint_manifest.commit(tmp_dir, final_dir, manifest_for(self.identity, saved))
        self._print(f"checkpoint {final_dir}")
        for old in sorted(final_dir.parent.glob("step-*"))[:-_CHECKPOINTS_KEPT]:
            checkpoint_manifest.discard(old)
        return str(final_dir)

    def newest_checkpoint(self) -> tuple[Path, checkpoint_manifest.Manifest] | None:
        """The newest checkpoint of an earlier local run that verifies."""
        for path in sorted(self._checkpoints().glob("step-*"), reverse=True):
            try:
                return path, checkpoint_manifest.verify(path)
            except checkpoint_manifest.CorruptCheckpoint as error:
                self._print(f"skipping {path}: {error}")
        return None

    def finish(self, result: Result) -> None:
        if self._leads:
            outcome = f"stopped ({result.stopped})" if result.stopped else "finished"
            self._print(f"{outcome} after step {result.step}; output in {result.output or 'nothing'}")

    def fail(self, error_type: str, message: str, stack: str) -> None:
        """The traceback is already on the terminal."""

    def _checkpoints(self) -> Path:
        directory = self.identity.run_dir / "checkpoints"
        directory.mkdir(parents=True, exist_ok=True)
        return directory

    def _print(self, text: str) -> None:
        print(f"trainyard: {text}", flush=True)  # noqa: T201
