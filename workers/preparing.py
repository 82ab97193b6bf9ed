"""Everything an attempt needs before its ranks start: model, data, script, checkpoint, and the spec that names them."""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.domain import hyperparameters
from app.extensions import Database
from app.models import Job
from app.services.attempts import Work
from app.services.reading import reading_rules
from app.storage.storage import Storage
from config.settings import Settings
from workers.failures import AttemptFailed
from workers.gpu_files import own_gpus
from workers.launcher import LaunchPlan
from workers.resolving import NO_MODEL, Library, Model, find_data, find_model, find_script
from workers.resuming import StartPoint, choose_start
from workers.run_directory import RunDirectory, write_atomically
from workers.sandbox import View, choose_sandbox

ENVIRONMENT = "training_config.environment."


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """An attempt that can be launched."""

    plan: LaunchPlan
    start: StartPoint


@dataclass(frozen=True, kw_only=True)
class Sources:
    """What was found on this machine."""

    model: Model | None
    tokenizer: Model | None
    data: tuple[Path, ...]
    script: Path | None

    @property
    def readable(self) -> tuple[Path, ...]:
        models = tuple(found.visible for found in (self.model, self.tokenizer) if found is not None)
        return models + self.data


def prepare(settings: Settings, db: Database, storage: Storage, work: Work, run: RunDirectory) -> Prepared:
    """Find and check everything, and write spec.json. Raises AttemptFailed with the precise cause."""
    sources = find_sources(library_for(settings, db, work.project), work.framework, work.spec)
    start = choose_start(storage, work.resume, run.path / "resume")
    spec = make_spec(work, run, sources, start)
    write_atomically(run.spec, spec)
    resume = (start.path,) if start.path is not None else ()
    view = View(
        run_dir=run.path,
        data_dir=settings.data.dir.resolve(),
        script_dir=sources.script.parent if sources.script is not None else None,
        readable=sources.readable + resume,
        protected=(run.spec, run.supervisor),
        hidden=private_places(settings, storage),
        gpus=tuple(spec["device_indices"]) if spec["device_type"] == "cuda" else (),
    )
    plan = LaunchPlan(
        spec=spec,
        spec_path=run.spec,
        view=view,
        sandbox=choose_sandbox(settings.node.sandbox),
        job_environment=job_environment(settings, work),
    )
    return Prepared(plan=plan, start=start)


def private_places(settings: Settings, storage: Storage) -> tuple[Path, ...]:
    """What no job may see although it may lie outside the data directory: everybody's results, and SQLite's files."""
    places = []
    stored = storage.local_path("jobs")
    if stored is not None:
        stored.mkdir(parents=True, exist_ok=True)  # what is not there yet can't be hidden
        places.append(stored.parent)
    scheme, _, path = settings.database.url.partition(":///")
    if scheme.startswith("sqlite") and path.startswith("/"):
        database = Path(path.partition("?")[0])
        places += [database.parent, *(database.with_name(database.name + end) for end in ("", "-wal", "-shm"))]
    return tuple(places)


def library_for(settings: Settings, db: Database, project: str) -> Library:
    """What this project's jobs may read on this node."""

    def project_of_job(job_id: str) -> str | None:
        with db.read() as session:
            job = session.get(Job, job_id)
            return job.project if job is not None else None

    cache_dir = settings.data.dir.resolve() / "cache" / "hub"
    return Library(rules=reading_rules(settings), cache_dir=cache_dir, project=project, project_of_job=project_of_job)


def find_sources(library: Library, framework: str, spec: Mapping[str, Any]) -> Sources:
    """The job's model, data and script on this machine. Raises AttemptFailed."""
    training, base = spec["training_config"], spec["training_config"]["base_model"]
    custom = framework == hyperparameters.CUSTOM
    model_id, tokenizer_id = base["model_id"], base.get("tokenizer_id")
    without_model = custom and model_id == NO_MODEL
    script = training["framework"].get("custom_script_path") if custom else None
    return Sources(
        script=find_script(library, script) if script else None,
        data=tuple(find_data(library, source["path"], directories=custom) for source in spec["data_config"]["sources"]),
        model=None if without_model else find_model(library, model_id, base.get("revision")),
        tokenizer=find_model(library, tokenizer_id) if tokenizer_id else None,
    )


def make_spec(work: Work, run: RunDirectory, sources: Sources, start: StartPoint) -> dict[str, Any]:
    """What agent and ranks read. Never holds a secret: those go by environment."""
    on_gpus = all(not device.is_cpu and not device.simulated for device in work.devices)
    indices = [device.index for device in work.devices]
    training = {**work.spec["training_config"], "environment": {}}
    return {
        "job_id": work.job_id,
        "attempt": work.attempt,
        "name": work.name,
        "run_dir": str(run.path),
        "channel": str(run.channel),
        "framework": work.framework,
        "training_type": work.training_type,
        "training_config": training,
        "data_config": work.spec["data_config"],
        "output_config": work.spec.get("output_config") or {},
        "hyperparameters": _hyperparameters(work),
        "model_path": str(sources.model.path) if sources.model is not None else "",
        "tokenizer_path": str(sources.tokenizer.path) if sources.tokenizer is not None else "",
        "data_paths": [str(path) for path in sources.data],
        "script": str(run.path / "code" / sources.script.name) if sources.script is not None else "",
        "device_type": "cuda" if on_gpus else "cpu",
        "device_indices": indices,
        "device_uuids": [gpu.uuid for gpu in own_gpus(indices)] if on_gpus else [],
        "world_size": len(work.devices),
        "threads_per_rank": work.threads_per_rank,
        "resume_checkpoint": str(start.path) if start.path is not None else "",
        "resume_step": start.step,
    }


def job_environment(settings: Settings, work: Work) -> dict[str, str]:
    """The variables that the job asked for, its secrets opened."""
    environment = dict(work.spec["training_config"].get("environment") or {})
    if not work.sealed_secrets:
        return environment
    # By name: cryptography takes 2 MB of every supervisor, and few jobs have secrets.
    box = importlib.import_module("app.security.secrets").SecretBox(settings.security.secret_key)
    secrets = box.open(work.sealed_secrets)
    opened = {key.removeprefix(ENVIRONMENT): value for key, value in secrets.items() if key.startswith(ENVIRONMENT)}
    return environment | opened


def _hyperparameters(work: Work) -> dict[str, Any]:
    raw = work.spec["training_config"].get("hyperparameters") or {}
    try:
        return hyperparameters.parse(work.framework, work.training_type, raw)
    except hyperparameters.InvalidHyperparameter as error:
        raise AttemptFailed("INVALID_CONFIG", error.message) from error
    except KeyError as error:
        known = ", ".join(f"{framework}/{kind}" for framework, kind in hyperparameters.TABLES)
        pair = f"{work.framework}/{work.training_type}"
        raise AttemptFailed("INVALID_CONFIG", f"no trainer for {pair}; known: {known}, CUSTOM") from error
