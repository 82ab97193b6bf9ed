"""Preflight of one job's model and data, or of its code, image or packages; or inspection of an uploaded file.

`python -m workers.prepare.preflight`, started or forked for coordinators.

Reads one JSON document {project, job_id, spec, sealed_secrets} from standard input and prints one report: {errors:
[{error_type, message}], warnings: [text], left_out: [text], sources: [...], …}. What could not be checked here is
listed in left_out; the node checks it when it prepares the attempt. For a file the document is {project, file_id,
purpose, size_bytes, seconds}, and the report that of `workers.prepare.files.inspection`; for a Python grader {grading,
seconds}, and that of `workers.prepare.grading.run`.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, TypeVar

from app.database.engine import Database
from app.database.from_settings import open_database
from app.domain.spec.hyperparameters import parsing
from app.domain.spec.hyperparameters.parsing import InvalidHyperparameter
from app.domain.spec.locations.code import is_git
from app.domain.spec.locations.paths import NO_MODEL
from app.domain.spec.model import JobDocument
from app.domain.spec.role_documents import training_of
from app.domain.spec.rules.packages import resolvable
from app.services.preflight import admission, fingerprints, inspections
from app.services.preflight.inference_inputs import measures_tasks
from app.services.preflight.programs import asks_registries
from app.storage.storage import Storage
from config.settings import Settings
from trainyard.protocol.run_spec import RunSpec
from workers.attempt_failed import AttemptFailed
from workers.fetching.directory_locks import DirectoryLock, sweep
from workers.fetching.fetch import TooLargeHere
from workers.job_secrets import opened_secrets
from workers.prepare import inspection_report
from workers.prepare.code_preflight import inspect_code
from workers.prepare.confined_program import end, environment
from workers.prepare.files.inspection import inspect_file
from workers.prepare.grading.run import run_grader
from workers.prepare.image_preflight import inspect_image
from workers.prepare.inputs.input_library import JobInputs, Library
from workers.prepare.inputs.model_weights import with_result_here
from workers.prepare.inspection_report import Report
from workers.prepare.job_image import refuse_foreign_images
from workers.prepare.own_user import borrowed_user
from workers.prepare.packages.preflight import inspect_packages
from workers.prepare.preflight_answer import answer
from workers.prepare.prepare import find_sources, input_fields, library_for
from workers.prepare.preview import PreviewLibrary, all_local, has_weights, identities
from workers.prepare.private_paths import private_paths
from workers.prepare.programs.program import job_environment
from workers.rank.spec_sections import training_config
from workers.sandbox.forked_launch import INSPECTION, Forked, launch_forked
from workers.sandbox.launcher import inherited_libraries
from workers.sandbox.sandbox import BUBBLEWRAP, PROCESS, ProcessGroup, Sandbox, SandboxUnavailable, choose_sandbox
from workers.sandbox.spec import FilesystemView, SandboxSpec

TIMEOUT_MARGIN_SECONDS = 2.0  # part of the time limit reserved for what follows the inspection
# Causes that another attempt or another machine may not have.
TRANSIENT = frozenset(
    {"STORAGE_ERROR", "NETWORK_ERROR", "DISK_FULL", "INTERNAL", "OUT_OF_MEMORY", "HOST_OUT_OF_MEMORY"}
)
NOT_THERE = frozenset({"MODEL_NOT_FOUND", "DATA_NOT_FOUND"})
OF_SCRIPTS = "the records: a script reads its data as it likes, so only that files are there was checked"
HUB_UNREACHABLE = "HUB_UNREACHABLE"
HUB_PAUSES_SECONDS = (1.0, 4.0)  # before a hub that did not answer is asked again

PreflightRequest = Mapping[str, Any]
Answer = TypeVar("Answer")


class PreflightTimeout(Exception):
    """Resolving model and data exceeded the preflight's time limit."""


def main() -> int:
    return answer(_report)


def _report(settings: Settings, question: PreflightRequest) -> Report:
    if question.get("file_id"):
        return inspect_file(settings, question)
    if question.get("grading"):
        return run_grader(settings, question)
    db = open_database(settings.database)
    try:
        return inspect_inputs(settings, db, question)
    finally:
        db.close()


def inspect_inputs(settings: Settings, db: Database, question: PreflightRequest) -> Report:
    """Resolve the document's inputs, then inspect them in the sandbox. Runs on the main thread."""
    began = time.monotonic()
    document = JobDocument.from_json(question["spec"])
    if question.get("job_id") and document.training_config.framework.type == parsing.CUSTOM:
        return _inspect_script(settings, db, question, document)
    report = _inspect_training(settings, db, question, document)
    if report.get("errors") or not question.get("job_id") or not asks_registries(document):
        return report
    seconds = max(1.0, settings.preflight.timeout_seconds - (time.monotonic() - began))  # of scripts beside it
    secrets = opened_secrets(settings, question["sealed_secrets"])
    return _joined(report, ask_registries(settings, db, question["project"], document, secrets, seconds))


def ask_registries(
    settings: Settings, db: Database, project: str, document: JobDocument, secrets: Mapping[str, str], seconds: float
) -> Report:
    """As ``inspect_image``, once the project's list allows all images: another registry is not sent the job's login."""
    try:
        with db.read() as session:
            refuse_foreign_images(session, project, document)
    except AttemptFailed as failure:
        return {"errors": [{"error_type": failure.error_type, "message": failure.message}]}
    return inspect_image(settings, project, document, secrets, seconds)


def _inspect_training(settings: Settings, db: Database, question: PreflightRequest, document: JobDocument) -> Report:
    began, limit = time.monotonic(), settings.preflight.timeout_seconds
    library = PreviewLibrary.of(
        library_for(settings, db, question["project"], opened_secrets(settings, question["sealed_secrets"])),
        fetch_bytes=settings.preflight.fetch_bytes,
    )
    try:
        values = _hyperparameters(document)
        with _alarm(limit):
            sources = _patiently(lambda: find_sources(library, _framework(question, document), document))
            sources = with_result_here(Storage(settings.storage.url), document, sources)
        seconds = {"found": round(time.monotonic() - began, 3)}
        print_ = _fingerprint(settings, question, document, sources, library)
        with db.read() as session:
            report = inspections.remembered(session, print_)
        if report is None:
            spec = _spec(question, document, sources, values)
            weights = sources.model is not None and has_weights(sources.model, library)
            report = _inspect(settings, spec, sources, library, limit - seconds["found"], has_weights=weights)
    except AttemptFailed as failure:
        return _failed(failure, question, library)
    except PreflightTimeout:
        return {"left_out": [f"model and data were not fetched within {limit:g} s"]}
    finally:
        library.close()
    seconds["inspected"] = round(time.monotonic() - began - seconds["found"], 3)
    return {**report, "fingerprint": print_, "seconds": {**report.get("seconds", {}), **seconds}}


def _inspect_script(settings: Settings, db: Database, question: PreflightRequest, document: JobDocument) -> Report:
    """What a script's job needs of a repository, an index or a registry."""
    began, limit = time.monotonic(), settings.preflight.timeout_seconds
    secrets = opened_secrets(settings, question["sealed_secrets"])
    code: Report = {}
    if is_git(document.training_config.framework.custom_code_dir or ""):
        library = PreviewLibrary.of(
            library_for(settings, db, question["project"], secrets), fetch_bytes=settings.preflight.fetch_bytes
        )
        try:
            with _alarm(limit):
                code = _patiently(lambda: inspect_code(library, document))
        except AttemptFailed as failure:
            code = _code_failed(failure, library)
        except PreflightTimeout:
            code = {"left_out": [f"the code was not fetched within {limit:g} s"]}
        finally:
            library.close()
    if code.get("errors"):
        return code
    seconds = max(1.0, limit - (time.monotonic() - began))
    if resolvable(document):
        variables = job_environment(document.training_config.environment, secrets)
        rest = inspect_packages(settings, document, variables, seconds)
    else:
        rest = ask_registries(settings, db, question["project"], document, secrets, seconds)
    return _joined(code, rest)


def _joined(first: Report, second: Report) -> Report:
    left_out = [*first.get("left_out", []), *second.get("left_out", [])]
    return {**first, **second, **({"left_out": left_out} if left_out else {})}


def _patiently(find: Callable[[], Answer]) -> Answer:
    """Raises AttemptFailed, for a host that does not answer only after several tries."""
    for pause in HUB_PAUSES_SECONDS:
        try:
            return find()
        except AttemptFailed as failure:
            if failure.error_type != HUB_UNREACHABLE:
                raise
        time.sleep(pause)
    return find()


def _fingerprint(
    settings: Settings, question: PreflightRequest, document: JobDocument, sources: JobInputs, library: Library
) -> str:
    """The fingerprint of fetched inputs; for local files the coordinator computes it before it starts a preflight.

    Empty also for a job with images of registries, as a tag may name another image at any time, and for one with tasks
    of the harness, whose files name others.
    """
    if all_local(sources, library) or asks_registries(document) or measures_tasks(document):
        return ""
    return fingerprints.combined(document, identities(sources), question["project"], settings.preflight.rows)


def _framework(question: PreflightRequest, document: JobDocument) -> str:
    training = document.training_config
    if not question.get("job_id") and training.base_model.model_id == NO_MODEL and document.inference is None:
        return parsing.CUSTOM  # custom jobs may have no model
    return training.framework.type


def _hyperparameters(document: JobDocument) -> dict[str, Any]:
    training = document.training_config
    try:
        return parsing.parse(training.framework.type, training.training_type, training.hyperparameters)
    except InvalidHyperparameter as error:
        raise AttemptFailed("INVALID_CONFIG", error.message) from error


def _spec(question: PreflightRequest, document: JobDocument, sources: JobInputs, values: dict[str, Any]) -> RunSpec:
    """The specification that a rank would get, as far as it is known before placement."""
    training, resources = document.training_config, training_of(document).resource_config
    return RunSpec(
        job_id=question.get("job_id") or "inspection",
        run_dir=Path(),  # set in _inspect
        framework=training.framework.type,
        training_type=training.training_type,
        training_config=training.changed(environment={}).to_json(),
        data_config=document.data_config.to_json(),
        output_config=document.output_config.to_json(),
        hyperparameters=values,
        **input_fields(sources),
        inference=document.inference.to_json() if document.inference is not None else {},
        world_size=resources.gpu_count * resources.node_count,
    )


def _inspect(
    settings: Settings, spec: RunSpec, sources: JobInputs, library: Library, seconds: float, *, has_weights: bool
) -> Report:
    began = time.monotonic()
    if spec.framework == parsing.CUSTOM:
        return {"left_out": [OF_SCRIPTS]}
    try:
        sandbox = _sandbox(settings, spec)
    except SandboxUnavailable as error:
        return {"left_out": [f"code of the job is not run on this coordinator: {error}"]}
    scratch = settings.data.dir.resolve() / "run" / "preflight"
    sweep(scratch)
    with DirectoryLock(scratch, "look") as directory:
        run_dir = directory.path
        for name in ("work", "tmp"):
            (run_dir / name).mkdir()
        path = run_dir / "spec.json"
        limits = {"rows": settings.preflight.rows, "memory_bytes": settings.preflight.memory_mb << 20}
        document = replace(spec, run_dir=run_dir).to_document()
        path.write_text(json.dumps({**document, **limits, "has_weights": has_weights}))
        view = FilesystemView(
            run_dir=run_dir,
            data_dir=settings.data.dir.resolve(),
            readable=sources.readable,
            claims=tuple(library.claims),
            software=settings.node.software,
            libraries=inherited_libraries(),
            protected=(path,),
            hidden=private_paths(settings, Storage(settings.storage.url)),
        )
        user = borrowed_user(settings, view, sandbox)
        with (run_dir / inspection_report.LOG).open("w+b") as log, user as own:
            until = began + seconds - TIMEOUT_MARGIN_SECONDS
            confinement = SandboxSpec(view=view, user=own)
            why = _run(sandbox, confinement, path, log, until, may_fork=training_config(spec).warm)
            return inspection_report.read(run_dir, log, why)


def _sandbox(settings: Settings, spec: RunSpec) -> Sandbox:
    """The sandbox; without one, only our own code reads user files. Raises SandboxUnavailable when user code would
    run.
    """
    try:
        return choose_sandbox(settings.node.sandbox)
    except SandboxUnavailable:
        if settings.node.sandbox == BUBBLEWRAP or training_config(spec).base_model.trust_remote_code:
            raise
        return ProcessGroup()


def _run(
    sandbox: Sandbox, confinement: SandboxSpec, spec: Path, log: IO[bytes], until: float, *, may_fork: bool
) -> str:
    """Run the inspection; returns why it has no result, or an empty string."""
    command = [sys.executable, "-m", "workers.trainers.inspection", "--spec", str(spec)]
    if sandbox.kind == PROCESS:
        command += ["--die-with", str(os.getpid())]
    inspection = Forked(INSPECTION, spec, command, environment(confinement.view, sandbox))
    process = launch_forked(sandbox, confinement, inspection, log.fileno()) if may_fork else None
    if process is None:
        with sandbox.enclosed(command, confinement) as enclosed:
            process = subprocess.Popen(
                enclosed.command,
                env=inspection.environment,
                cwd=confinement.view.run_dir,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=enclosed.files,
                start_new_session=True,
            )
    limit = max(1.0, until - time.monotonic())
    try:
        code = process.wait(limit)
    except subprocess.TimeoutExpired:
        return f"the preflight of model and data took longer than {limit:.0f} s"
    finally:
        end(process)
    return "" if code == 0 else f"the preflight of model and data ended with exit code {code}"


def _failed(failure: AttemptFailed, question: PreflightRequest, library: Library) -> Report:
    if failure.error_type == HUB_UNREACHABLE and not question.get("job_id"):
        return {"left_out": [f"the model and the data, which are inspected together: {failure.message}"]}
    here_only = question.get("job_id") and _may_be_elsewhere(failure, library)
    if failure.error_type in TRANSIENT or isinstance(failure, TooLargeHere) or here_only:
        return {"left_out": [failure.message]}
    return {"errors": [{"error_type": failure.error_type, "message": failure.message}]}


def _code_failed(failure: AttemptFailed, library: Library) -> Report:
    """A node without the same directories may also have another way to the repository."""
    is_left = failure.error_type in TRANSIENT or isinstance(failure, TooLargeHere)
    if is_left or not admission.sees_roots(library.rules):
        return {"left_out": [failure.message]}
    return {"errors": [{"error_type": failure.error_type, "message": failure.message}]}


def _may_be_elsewhere(failure: AttemptFailed, library: Library) -> bool:
    """Whether nodes may have what was not found here."""
    if failure.error_type in NOT_THERE or failure.error_type == HUB_UNREACHABLE:
        # Without the nodes' directories this machine may also lack their keys for hubs and storages, and what inspects
        # like a hub id may be one of their directories.
        return not admission.sees_roots(library.rules)
    # A location that this machine is not configured for.
    return failure.error_type == "INVALID_CONFIG" and "://" in failure.message


@contextlib.contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """Raise PreflightTimeout in the block when it takes longer."""

    def ring(_number: int, _frame: object) -> None:
        raise PreflightTimeout

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


if __name__ == "__main__":
    sys.exit(main())
