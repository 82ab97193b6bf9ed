"""`_manifest.json`, written last: which files make the whole output, and with what they were made."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from app.domain.spec.inference import kind_of
from trainyard._hooks import outputs as _outputs
from workers.rank.run_context import RunSpec
from workers.rank.spec_sections import training_config
from workers.trainers.inference.parts import Counts, OutputPart, counts_file
from workers.trainers.inference.section import inference_of

NAME = "_manifest.json"
_FORMAT = 1
_LIBRARIES = ("torch", "transformers")
_WEIGHTS = "*.safetensors"


def write_manifest(spec: RunSpec, output: Path, parts: Sequence[OutputPart], model: Mapping[str, Any]) -> None:
    """Describe every file in ``output``, and remove the files of counts. Holds no times and no names of machines, so
    that a run that was interrupted leaves the same bytes.
    """
    for part in parts:
        (output / counts_file(part.shard)).unlink()
    section = inference_of(spec)
    document = {
        "format": _FORMAT,
        "kind": kind_of(spec.training_type),
        "model": model,
        "task": section.task.to_json(),
        "output": section.output.to_json(),
        "counts": {"records": sum(part.shard.records for part in parts), **asdict(_total(parts))},
        # Formats that are joined at the end have no files of parts any more.
        "parts": [
            {**part.position(), "files": [name for name in part.files if (output / name).exists()]} for part in parts
        ],
        "files": [_described(output, path) for path in sorted(output.rglob("*")) if path.is_file()],
        "versions": {name: version(name) for name in _LIBRARIES},
    }
    text = json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    (output / NAME).write_text(text, encoding="utf-8")


def described_model(spec: RunSpec) -> dict[str, Any]:
    """The model by name and by the SHA-256 over its weights, as the report of a training has it; of an adapter both
    its own and its base model's.
    """
    base, reference = training_config(spec).base_model, inference_of(spec).model
    if reference.service is not None:
        return {"service": reference.service}  # whose weights are not here
    named = {"model_id": base.model_id, "job_id": reference.job_id, "checkpoint_id": reference.checkpoint_id}
    digests = {"model_hash": _hash(Path(spec.weights_path or spec.model_path))}
    if reference.adapter:
        digests["base_model_hash"] = _hash(Path(spec.model_path))
    return {**named, **digests}


def _total(parts: Sequence[OutputPart]) -> Counts:
    return sum((part.counts for part in parts), Counts())


def _hash(directory: Path) -> str:
    # The checkpoint of a training has other files that end as weights do, such as the optimizer's.
    names = sorted(path.name for path in directory.glob(_WEIGHTS)) or _outputs.weight_files(directory)
    whole = hashlib.sha256()
    for name in names:
        for block in _blocks(directory / name):
            whole.update(block)
    return whole.hexdigest()


def _described(output: Path, path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"path": path.relative_to(output).as_posix(), "size_bytes": path.stat().st_size, "sha256": digest}


def _blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            yield block
