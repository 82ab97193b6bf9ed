"""Runs of the trainers of inference jobs in this process, with the engine that needs no model."""

import json
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.unit.workers.trainers.inference.stand_in_engine import DIMENSION, NAME
from trainyard._hooks.local_session import LocalSession
from trainyard.protocol.commands import Stop
from trainyard.protocol.messages import Progress
from trainyard.protocol.session import Identity, Saved
from workers.rank.run_context import Result, RunContext, RunSpec
from workers.trainers.inference.batch import BatchTrainer
from workers.trainers.inference.features import FeaturesTrainer

_TYPES = {"BATCH": BatchTrainer, "FEATURES": FeaturesTrainer}


class RecordingSession(LocalSession):
    """Keeps what is reported; requests a stop once so many shards are handed over."""

    def __init__(self, spec: RunSpec, *, rank: int = 0, stop_after: int | None = None, kind: str = "pause") -> None:
        super().__init__(Identity.of(spec, rank=rank))
        self.steps: list[tuple[int, int | None]] = []
        self.phases: list[str] = []
        self.positions: list[dict[str, Any]] = []
        self.parts: list[Path] = []
        self._reported = threading.Condition()
        self._stop_after = stop_after
        self._kind = kind

    def phase(self, name: str) -> None:
        self.phases.append(name)

    def progress(self, progress: Progress) -> None:
        with self._reported:
            self.steps.append((progress.step, progress.total_steps))
            self._reported.notify_all()
        # The first report is made before any shard.
        if len(self.steps) - 1 == self._stop_after:
            self.commands.apply(Stop(self._kind, save_checkpoint=True))

    def wait_for_step(self, step: int) -> None:
        """From another thread."""
        with self._reported:
            self._reported.wait_for(lambda: bool(self.steps) and self.steps[-1][0] >= step, timeout=60)

    def commit_checkpoint(self, tmp_dir: Path, saved: Saved) -> str:
        self.positions.append({"step": saved.step, **saved.data_position})
        path = super().commit_checkpoint(tmp_dir, saved)
        self.parts.append(Path(path))
        return path


def write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def model_in(directory: Path) -> Path:
    """What the output says of a model comes from these files."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(
        json.dumps({"model_type": "llama", "hidden_size": DIMENSION, "num_attention_heads": 1})
    )
    (directory / "model.safetensors").write_bytes(b"weights")
    return directory


def make_spec(directory: Path, data: Path, section: Mapping[str, Any], **values: Any) -> RunSpec:
    kind = "FEATURES" if section.get("task", {}).get("type") == "embed" else "BATCH"
    given = {
        "framework": NAME,
        "training_type": kind,
        "training_config": {"base_model": {"model_id": "small"}},
        "model_path": str(model_in(directory / "model")),
        "data_paths": (str(data),),
        **values,
    }
    return RunSpec(run_dir=directory / given.pop("run", "run"), inference=section, **given)


def run(spec: RunSpec, session: RecordingSession | None = None) -> Result:
    spec.run_dir.mkdir(exist_ok=True)
    context = RunContext(spec, session or RecordingSession(spec))
    result = _TYPES[spec.training_type](context).run()
    context.finish(result)
    return result


def lines_of(output: Path) -> list[dict[str, Any]]:
    """The rows of all parts in their order."""
    return [json.loads(line) for path in sorted(output.glob("part-*.jsonl")) for line in path.read_text().splitlines()]


def contents(output: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(output.iterdir())}
