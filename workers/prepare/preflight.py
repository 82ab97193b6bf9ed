"""Preflight of one job's model and data: `python -m workers.prepare.preflight`, started by coordinators.

Reads one JSON document {project, job_id, spec, sealed_secrets} from its standard input and prints one report:
{errors: [{error_type, message}], warnings: [text], left_out: [text], sources: [...], …}. What could not be looked at
here stands in left_out: the node finds out.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from app.database.engine import Database
from app.database.from_settings import open_database
from app.domain.spec.hyperparameters import parsing
from app.domain.spec.hyperparameters.parsing import InvalidHyperparameter
from app.domain.spec.locations.paths import NO_MODEL
from app.host.processes import die_with_parent, hide_from_same_user
from app.services.preflight import admission, fingerprints, inspections
from app.storage.storage import Storage
from config.settings import Settings, load_settings
from trainyard.protocol.run_spec import RunSpec
from workers.attempt_failed import AttemptFailed
from workers.fetching.directory_locks import Held, sweep
from workers.fetching.fetch import TooLargeHere
from workers.job_secrets import opened_secrets
from workers.prepare import inspection_report
from workers.prepare.input_library import Library, Sources
from workers.prepare.inspection_report import Report
from workers.prepare.prepare import find_sources, input_fields, library_for, private_places
from workers.prepare.preview import Preview, all_here, has_weights, identities
from workers.sandbox.launcher import inherited_environment, inherited_libraries
from workers.sandbox.sandbox import BUBBLEWRAP, PROCESS, NoSandbox, ProcessGroup, Sandbox, View, choose_sandbox

LEAVE_SECONDS = 2.0  # of the time limit, for what comes after the inspection
# What another attempt, or another machine, may do better.
TRANSIENT = frozenset(
    {"STORAGE_ERROR", "NETWORK_ERROR", "DISK_FULL", "INTERNAL", "OUT_OF_MEMORY", "HOST_OUT_OF_MEMORY"}
)
NOT_THERE = frozenset({"MODEL_NOT_FOUND", "DATA_NOT_FOUND"})

Question = Mapping[str, Any]


class Late(Exception):
    """Finding model and data took longer than a look may take."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="workers.prepare.preflight", description=__doc__)
    parser.add_argument("--die-with", required=True, type=int)
    die_with_parent(parser.parse_args().die_with)
    hide_from_same_user()  # the database's password
    settings = load_settings()
    db = open_database(settings.database)
    try:
        report = look(settings, db, json.load(sys.stdin))
    finally:
        db.close()
    print(json.dumps(report))  # noqa: T201 – the answer to our parent
    return 0


def look(settings: Settings, db: Database, question: Question) -> Report:
    """Resolve what the document names, then inspect it in the sandbox. Runs on the main thread."""
    began = time.monotonic()
    limit = settings.preflight.timeout_seconds
    library = Preview.of(
        library_for(settings, db, question["project"], opened_secrets(settings, question["sealed_secrets"])),
        fetch_bytes=settings.preflight.fetch_bytes,
    )  # fmt: skip
    try:
        values = _hyperparameters(question["spec"])
        with _alarm(limit):
            sources = find_sources(library, _framework(question), question["spec"])
        seconds = {"found": round(time.monotonic() - began, 3)}
        print_ = _fingerprint(settings, question, sources, library)
        with db.read() as session:
            report = inspections.remembered(session, print_)
        if report is None:
            spec = _spec(question, sources, values)
            weights = sources.model is not None and has_weights(sources.model, library)
            report = _inspect(settings, spec, sources, limit - seconds["found"], has_weights=weights)
    except AttemptFailed as failure:
        return _failed(failure, question, library)
    except Late:
        return {"left_out": [f"model and data were not fetched within {limit:g} s"]}
    finally:
        library.close()
    seconds["inspected"] = round(time.monotonic() - began - seconds["found"], 3)
    return {**report, "fingerprint": print_, "seconds": {**report.get("seconds", {}), **seconds}}


def _fingerprint(settings: Settings, question: Question, sources: Sources, library: Library) -> str:
    """Of what was fetched; for local files the coordinator has done it, and asks us only if they are new."""
    if all_here(sources, library):
        return ""
    return fingerprints.combined(
        question["spec"], identities(sources), question["project"], settings.preflight.rows
    )  # fmt: skip


def _framework(question: Question) -> str:
    training = question["spec"]["training_config"]
    if not question.get("job_id") and training["base_model"]["model_id"] == NO_MODEL:
        return parsing.CUSTOM  # whose jobs may have no model, either
    return str(training["framework"]["type"])


def _hyperparameters(spec: Mapping[str, Any]) -> dict[str, Any]:
    training = spec["training_config"]
    try:
        return parsing.parse(
            training["framework"]["type"], training["training_type"], training.get("hyperparameters") or {}
        )
    except InvalidHyperparameter as error:
        raise AttemptFailed("INVALID_CONFIG", error.message) from error


def _spec(question: Question, sources: Sources, values: dict[str, Any]) -> RunSpec:
    """The specification that a rank would get, as far as it is known before placement."""
    spec = question["spec"]
    training, resources = {**spec["training_config"], "environment": {}}, spec.get("resource_config") or {}
    return RunSpec(
        job_id=question.get("job_id") or "inspection",
        run_dir=Path(),  # set in _inspect
        framework=training["framework"]["type"],
        training_type=training["training_type"],
        training_config=training,
        data_config=spec["data_config"],
        output_config=spec.get("output_config") or {},
        hyperparameters=values,
        **input_fields(sources),
        world_size=(resources.get("gpu_count") or 1) * (resources.get("node_count") or 1),
    )


def _inspect(settings: Settings, spec: RunSpec, sources: Sources, seconds: float, *, has_weights: bool) -> Report:
    if spec.framework == parsing.CUSTOM:
        return {}  # a script reads its data as it likes
    try:
        sandbox = _sandbox(settings, spec)
    except NoSandbox as error:
        return {"left_out": [f"nothing of the job's is run on this coordinator: {error}"]}
    scratch = settings.data.dir.resolve() / "run" / "preflight"
    sweep(scratch)
    with Held(scratch, "look") as directory:
        run_dir = directory.path
        for name in ("work", "tmp"):
            (run_dir / name).mkdir()
        path = run_dir / "spec.json"
        limits = {"rows": settings.preflight.rows, "memory_bytes": settings.preflight.memory_mb << 20}
        document = replace(spec, run_dir=run_dir).to_document()
        path.write_text(json.dumps({**document, **limits, "has_weights": has_weights}))
        view = View(
            run_dir=run_dir,
            data_dir=settings.data.dir.resolve(),
            readable=sources.readable,
            libraries=inherited_libraries(),
            protected=(path,),
            hidden=private_places(settings, Storage(settings.storage.url)),
        )
        with (run_dir / inspection_report.LOG).open("w+b") as log:
            why = _run(sandbox, view, path, log, seconds)
            return inspection_report.read(run_dir, log, why)


def _sandbox(settings: Settings, spec: RunSpec) -> Sandbox:
    """Where there is none only our own code reads what users name. Raises NoSandbox where theirs would run."""
    try:
        return choose_sandbox(settings.node.sandbox)
    except NoSandbox:
        if settings.node.sandbox == BUBBLEWRAP or spec.training_config["base_model"].get("trust_remote_code"):
            raise
        return ProcessGroup()


def _run(sandbox: Sandbox, view: View, spec: Path, log: IO[bytes], seconds: float) -> str:
    """Run the inspection to its end; why it has no result, or empty when it should have one."""
    command = [sys.executable, "-m", "workers.trainers.inspection", "--spec", str(spec)]
    if sandbox.kind == PROCESS:
        command += ["--die-with", str(os.getpid())]
    limit = max(1.0, seconds - LEAVE_SECONDS)
    process = subprocess.Popen(
        sandbox.enclose(command, view), env=_environment(view), cwd=view.run_dir,
        stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
    )  # fmt: skip
    try:
        code = process.wait(limit)
    except subprocess.TimeoutExpired:
        return f"the look at model and data took longer than {limit:.0f} s"
    finally:
        _end(process)
    return "" if code == 0 else f"the look at model and data ended with exit code {code}"


def _end(process: subprocess.Popen[bytes]) -> None:
    """Without bubblewrap children may be left: they are in its session's group unless they went to lengths."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _environment(view: View) -> dict[str, str]:
    work = view.run_dir / "work"
    return {
        **inherited_environment(),
        "HOME": str(work),
        "HF_HOME": str(work / "huggingface"),
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONSAFEPATH": "1",
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }


def _failed(failure: AttemptFailed, question: Question, library: Library) -> Report:
    here_only = question.get("job_id") and _may_be_elsewhere(failure, library)
    if failure.error_type in TRANSIENT or isinstance(failure, TooLargeHere) or here_only:
        return {"left_out": [failure.message]}
    return {"errors": [{"error_type": failure.error_type, "message": failure.message}]}


def _may_be_elsewhere(failure: AttemptFailed, library: Library) -> bool:
    """Whether nodes may have what was not found here."""
    if failure.error_type in NOT_THERE:
        # Without the nodes' directories this machine may lack their keys for hubs and storages, too; and what looks
        # like a hub's model may be a directory of theirs.
        return not admission.sees_roots(library.rules)
    # A place that this machine is not set up for.
    return failure.error_type == "INVALID_CONFIG" and "://" in failure.message


@contextlib.contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """Raises Late in the block when it takes longer."""

    def ring(_number: int, _frame: object) -> None:
        raise Late

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


if __name__ == "__main__":
    sys.exit(main())
