"""Inspects a job's model and data the way its trainer loads them: `python -m workers.trainers.inspection --spec
DIR/spec.json`.

Runs on a CPU, in the sandbox, started by `workers.prepare.preflight`; writes its findings to DIR/report.json. Needs
neither trl nor the model's weights.
"""

import argparse
import json
import os
import resource
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from app.domain.spec.inference import TRAINING, kind_of
from app.domain.spec.rules.model import is_drawn
from app.host.landlock import stay_below
from app.host.processes import die_with_parent
from workers.rank.run_context import RunSpec
from workers.rank.spec_sections import training_config
from workers.trainers.failures import TrainingFailure, error_type

REPORT = "report.json"
# Errors that end an inspection without a conclusion about the job.
_INCONCLUSIVE = frozenset({"OUT_OF_MEMORY", "HOST_OUT_OF_MEMORY", "STORAGE_ERROR", "DISK_FULL"})
_MOST_WRITTEN_BYTES = 1 << 30

Findings = dict[str, Any]


def main() -> int:
    """Inspect what the arguments say, and write the report."""
    parser = argparse.ArgumentParser(prog="workers.trainers.inspection", description=__doc__)
    parser.add_argument("--spec", required=True, type=Path)
    parser.add_argument("--die-with", type=int)
    arguments = parser.parse_args()
    if arguments.die_with is not None:
        die_with_parent(arguments.die_with)
    else:
        stay_below(Path("/"))  # a model may bring code
    document = json.loads(arguments.spec.read_text(encoding="utf-8"))
    _limit(document["memory_bytes"])
    (arguments.spec.parent / REPORT).write_text(json.dumps(inspect(document)))
    return 0


def inspect(document: Mapping[str, Any]) -> Findings:
    """The findings about a spec.json that also says how many `rows` to read, and whether the model `has_weights`.

    `errors` [{error_type, message}], `warnings`, `left_out`, `sources`, and measurements.
    """
    findings: Findings = {"errors": [], "warnings": [], "left_out": [], "sources": []}
    try:
        _inspect(document, findings)
    except Exception as error:  # noqa: BLE001  (whatever it is, it is a finding)
        _add_failure(findings, error)
    return findings


def _inspect(document: Mapping[str, Any], findings: Findings) -> None:
    began = time.monotonic()
    spec = RunSpec.from_document(document)
    # Imported only now: the memory limit applies, and a missing package becomes a finding.
    if kind_of(spec.training_type) != TRAINING:
        from workers.trainers.inference.inspection import inspect_records  # noqa: PLC0415

        inspect_records(spec, int(document["rows"]), findings)
        findings["seconds"] = {"data": round(time.monotonic() - began, 3)}
        return
    from workers.trainers import inspection_data, inspection_model  # noqa: PLC0415

    imported = time.monotonic()
    tokenizer = None
    if spec.model_path or is_drawn(training_config(spec).base_model):
        tokenizer = inspection_model.inspect_model(spec, findings, has_weights=bool(document["has_weights"]))
    loaded = time.monotonic()
    inspection_data.inspect_data(spec, tokenizer, int(document["rows"]), findings)
    findings["seconds"] = {
        "imports": round(imported - began, 3),
        "model": round(loaded - imported, 3),
        "data": round(time.monotonic() - loaded, 3),
    }


def _add_failure(findings: Findings, error: Exception) -> None:
    kind = "HOST_OUT_OF_MEMORY" if _met_its_limit(error) else error_type(error)
    if kind in _INCONCLUSIVE:
        findings["left_out"].append(
            f"the preflight of model and data was aborted: {str(error) or type(error).__name__}"
        )
        return
    message = str(error) if isinstance(error, TrainingFailure) else f"{type(error).__name__}: {error}"
    if kind == "TRAINER_ERROR":
        # A platform or library fault does not prove that the training would fail, too.
        findings["left_out"].append(f"the preflight of model and data failed: {message}")
        return
    findings["errors"].append({"error_type": kind, "message": message})


def _met_its_limit(error: BaseException | None) -> bool:
    """Whether the memory limit caused the error; to a reader it can look like a damaged file."""
    while error is not None:
        if isinstance(error, MemoryError):
            return True
        error = error.__cause__
    return False


def _limit(memory_bytes: int) -> None:
    """Limits the memory that a hostile file can take. Not RLIMIT_AS: torch and mapped files reserve far more than
    they use.
    """
    resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_MOST_WRITTEN_BYTES, _MOST_WRITTEN_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    os._exit(main())  # nothing is left to do, and unloading torch takes time
