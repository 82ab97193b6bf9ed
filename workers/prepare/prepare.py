"""Prepares an attempt before its ranks start: model, data, script, checkpoint, and the spec.json that names them."""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from app.database.engine import Database
from app.domain.model_cards.inputs import ReadInputs
from app.domain.nodes.sandboxes import WITHOUT_NAMESPACES
from app.domain.spec.credentials import access_of, texts_of
from app.domain.spec.document import judging_job, judging_model
from app.domain.spec.frameworks.custom import checkpoint_glob, launcher
from app.domain.spec.frameworks.requirements import LOCKED, NETWORK, NOT_ON_SEVERAL, PEERS
from app.domain.spec.hyperparameters import parsing
from app.domain.spec.hyperparameters.rlhf import reward_file
from app.domain.spec.locations.egress import GATE
from app.domain.spec.model import BaseModel, DataConfig, JobDocument, OutputConfig
from app.domain.spec.role_documents import document_of
from app.domain.spec.rules.model import is_drawn, is_without_model
from app.domain.spec.secrets import MODEL_PATH, source_path, with_secrets
from app.domain.units import WHOLE
from app.models import Job
from app.services.access import volume_claims
from app.services.access.egress import without_services
from app.services.attempts.work_orders import WorkOrder
from app.services.nodes import project_demands
from app.services.requests.storage_access import reading_rules
from app.storage.storage import Storage
from config.redaction import Redaction
from config.settings import Settings
from config.values.rules import HOST_NETWORK
from trainyard.protocol.run_spec import RunSpec
from workers.attempt_failed import AttemptFailed
from workers.fetching.uris import shown
from workers.images.named_field import naming
from workers.job_secrets import opened_secrets
from workers.prepare.benchmark_files import find_benchmark_files
from workers.prepare.inputs.input_library import JobInputs, Library, LocalData
from workers.prepare.inputs.kept_tokens import KeptTokens, with_kept_tokens
from workers.prepare.inputs.model_files import digest_of
from workers.prepare.inputs.model_weights import with_results
from workers.prepare.inputs.named_files import named_files
from workers.prepare.inputs.read_inputs import read_inputs
from workers.prepare.inputs.resolve_inputs import DataRequest, ModelRequest, find, find_script
from workers.prepare.inputs.resume_point import StartPoint, refuse_changed_reward
from workers.prepare.inputs.uploaded_data import uploads_of
from workers.prepare.job_account import account_of
from workers.prepare.job_devices import device_files
from workers.prepare.job_image import JobImage, refuse_foreign_images, with_image
from workers.prepare.job_mounts import Mounted, check_placements, with_mounts
from workers.prepare.limits import limits_here
from workers.prepare.own_user import own_user_of
from workers.prepare.packages.job_packages import JobPackages, with_packages
from workers.prepare.private_paths import private_paths
from workers.prepare.programs.program import device_uuids, find_program, job_environment, program
from workers.prepare.programs.roles import RolesHere, with_roles
from workers.prepare.start import find_start
from workers.prepare.volume_claims import refuse_new_outputs
from workers.publishing.preflight import check_output
from workers.run_dir.layout import RunDirectory, write_atomically
from workers.sandbox.launcher import LaunchPlan
from workers.sandbox.sandbox import Sandbox, SandboxUnavailable, choose_sandbox
from workers.sandbox.spec import FilesystemView, SandboxSpec

PROXY_PORT = 3128  # free, because the loopback is that of the attempt alone


@dataclass(frozen=True, kw_only=True)
class PreparedAttempt:
    """An attempt that is ready to launch. Fetched files stay until its supervisor ends."""

    plan: LaunchPlan
    start: StartPoint
    redaction: Redaction = field(default_factory=Redaction)  # knows the job's secrets
    tokens: KeptTokens | None = None  # to keep when the ranks have stored them
    image: JobImage | None = None
    packages: JobPackages | None = None
    inputs: ReadInputs | None = None


def prepare(
    settings: Settings, db: Database, storage: Storage, work: WorkOrder, run: RunDirectory, redaction: Redaction
) -> PreparedAttempt:
    """Resolve and check all inputs, and write spec.json. Raises AttemptFailed with the precise cause."""
    redaction.add(texts_of(secrets := opened_secrets(settings, work.sealed_secrets)))  # before anything can log them
    required = _checked_demands(settings, db, work)  # first: it is quick, and what is fetched next may not be
    library = library_for(settings, db, work.project, secrets)
    work, sources, model = with_results(db, storage, work, find_sources(library, work.framework, work.document), run)
    inputs = read_inputs(library, work.document.training_config.base_model, sources)
    weights = "" if work.is_training else digest_of(_model_paths(sources), library.opened)
    start = find_start(storage, work, run, sources, weights)
    spec = make_spec(work, run, sources, start, proxy_port=proxy_port(settings, work))
    spec = replace(spec, weights_path=str(model or ""), weights_sha256=weights, locked=LOCKED in required)
    held = limits_here(work, settings, sandbox := sandbox_of(settings))
    spec = replace(spec, max_output_files=settings.storage.max_output_files, resource_limits=held.of_processes)
    refuse_changed_reward(start, spec.reward_sha256)
    environment = job_environment(work.document.training_config.environment, secrets)
    spec, tokens, stored = with_kept_tokens(library, spec, sources, environment, is_training=work.is_training)
    image = with_image(spec, work.document_here, settings, library, sandbox)
    packages = with_packages(image.spec, work.document, settings, library, sandbox, environment, sources.code)
    roles = with_roles(packages, RolesHere(settings, work, library, sandbox, run, redaction, image), sources, secrets)
    mounted = with_mounts(roles.spec, with_secrets(work.document, secrets), sources, run, sandbox, library)
    write_atomically(run.spec, mounted.spec.to_document())
    named = (*named_files(library, work.document.training_config.framework), *roles.readable, start.path, model, stored)
    readable = (*sources.readable, *filter(None, named))
    view = view_of(settings, storage, run, mounted, code=sources.code, readable=readable, image=image)
    plan = LaunchPlan(
        spec=mounted.spec,
        spec_path=run.spec,
        confinement=confinement_of(settings, work, view, image, sandbox, required),
        sandbox=sandbox,
        job_environment=environment,
        limits=held.limits,
        groups=held.groups,
        cores=held.cores,
        role_environments=roles.environments,
    )
    return PreparedAttempt(
        plan=plan, start=start, redaction=redaction, tokens=tokens, image=image, packages=packages, inputs=inputs
    )


def _model_paths(sources: JobInputs) -> list[Path]:
    return [found.path for found in (sources.model, sources.tokenizer) if found is not None]


def confinement_of(
    settings: Settings,
    work: WorkOrder,
    view: FilesystemView,
    image: JobImage,
    sandbox: Sandbox,
    required: Collection[str],
) -> SandboxSpec:
    """``required``: capabilities, as of ``_checked_demands``. Raises AttemptFailed."""
    resources = work.document.resource_config
    return SandboxSpec(
        view=view,
        shm_mb=resources.limits.shm_mb,
        account=account_of(resources.user, image, sandbox),
        user=own_user_of(settings, view, sandbox, required),
        own_network=has_own_network(settings, work),
        must_be_guarded=PEERS in required,
    )


def has_own_network(settings: Settings, work: WorkOrder) -> bool:
    """Whether the ranks have loopback alone; those of several nodes must reach each other."""
    node = settings.node
    return not work.is_gang and node.network != HOST_NETWORK and node.sandbox not in WITHOUT_NAMESPACES


def _checked_demands(settings: Settings, db: Database, work: WorkOrder) -> set[str]:
    """Capabilities that the job, its project or the node's operator requires. Raises AttemptFailed where the ranks
    lack the network or the second lock that these want, nothing could be published, or the project forbids an image.
    """
    with db.read() as session:
        words = project_demands.of_project(session, work.project).words
        may_make_claims = volume_claims.may_create(session, work.project)
        refuse_foreign_images(session, work.project, work.document)
    required = {*words, *work.document.scheduling_config.required_capabilities, *settings.node.sandbox_least}
    if NETWORK in required and not has_own_network(settings, work):
        raise AttemptFailed("INVALID_CONFIG", f"scheduling_config.required_capabilities: {NOT_ON_SEVERAL}")
    if PEERS in required and not work.is_gang and not has_own_network(settings, work):
        raise AttemptFailed("INTERNAL", f"this node lets others reach the ports of the job's ranks ({PEERS})")
    if LOCKED in required and settings.node.sandbox in WITHOUT_NAMESPACES:  # demanded since the job was placed
        raise AttemptFailed("INTERNAL", f"this node can't give the job a second lock ({LOCKED}): it has no sandbox")
    if not may_make_claims:
        refuse_new_outputs(settings.fetch, work.project, work.document.output_config)
    check_output(settings, work)
    return required


def proxy_port(settings: Settings, work: WorkOrder) -> int:
    """Where ranks without the machine's network find the gate to their project's services; 0 where they need none.

    Raises AttemptFailed when nothing is left in the list that the job was submitted with.
    """
    if work.document.resource_config.network == GATE and not work.egress:
        raise AttemptFailed("INVALID_CONFIG", f"resource_config.network: {without_services(work.project)}")
    return PROXY_PORT if work.egress and has_own_network(settings, work) else 0


def view_of(
    settings: Settings,
    storage: Storage,
    run: RunDirectory,
    mounted: Mounted,
    *,
    code: Path | None,
    readable: Sequence[Path],
    image: JobImage,
) -> FilesystemView:
    """What the ranks of an attempt on this node see of its file system. Raises AttemptFailed."""
    spec = mounted.spec
    view = FilesystemView(
        run_dir=run.path,
        data_dir=settings.data.dir.resolve(),
        code=code,
        readable=tuple(readable),
        software=settings.node.software,
        protected=(run.spec, run.supervisor),
        hidden=private_paths(settings, storage),
        devices=device_files(spec, settings.node.sandbox),
        placements=mounted.placements,
        claims=mounted.claims,
        image=image.root,
    )
    with naming(image.field):
        check_placements(view)
    return view


def sandbox_of(settings: Settings) -> Sandbox:
    """The sandbox. Raises AttemptFailed when it disappeared after the node had reported one."""
    try:
        return choose_sandbox(settings.node.sandbox)
    except SandboxUnavailable as error:
        raise AttemptFailed("INTERNAL", f"this node can start no job: {error}") from error


def library_for(settings: Settings, db: Database, project: str, secrets: Mapping[str, str] | None = None) -> Library:
    """What this project's jobs may read on this node; ``secrets`` are the job's, decrypted."""

    def project_of_job(job_id: str) -> str | None:
        with db.read() as session:
            job = session.get(Job, job_id)
            return job.project if job is not None else None

    def may_make_claims() -> bool:
        with db.read() as session:
            return volume_claims.may_create(session, project)

    return Library(
        rules=reading_rules(settings),
        cache_dir=settings.data.dir.resolve() / "cache",
        project=project,
        project_of_job=project_of_job,
        may_make_claims=may_make_claims,
        uploads=uploads_of(db, settings.storage.url, project),
        fetch=settings.fetch,
        cache=settings.cache,
        secrets=secrets or {},
    )


def find_sources(library: Library, framework: str, document: JobDocument) -> JobInputs:
    """The job's model, data and script on this machine, fetched if necessary. Raises AttemptFailed."""
    training, base = document.training_config, document.training_config.base_model
    custom = framework == parsing.CUSTOM
    script, code = find_program(library, training.framework) if custom else (None, None)
    for role in document.tasks:  # they are used when a node knows which of them it runs
        find_program(library, document_of(document, role).training_config.framework)
    values = {} if custom else training.hyperparameters
    judge, judging = reward_file(values), "" if judging_job(document) else judging_model(document)
    found_judge = find_script(library, judge, "reward") if judge else None
    alone = custom or document.inference is not None  # it may bring a whole model of its own
    weightless = is_drawn(base) or _asks_service(document)
    wanted = model_requests(base, library.secrets, custom=alone, weightless=weightless) + (
        [ModelRequest(model_id=judging)] if judging else []
    )
    models, data = find(library, wanted, data_requests(document.data_config, library.secrets, custom=custom))
    found_model = models.pop() if judging else None
    return JobInputs(
        model=None if is_without_model(base, custom=alone) else models[0],
        tokenizer=models[-1] if base.tokenizer_id else None,
        data=tuple(data),
        script=script,
        code=code,
        reward=found_judge,
        reward_model=found_model,
        benchmark_files=find_benchmark_files(library, document),
    )


def _asks_service(document: JobDocument) -> bool:
    return document.inference is not None and document.inference.model.service is not None


def model_requests(
    base: BaseModel, secrets: Mapping[str, str], *, custom: bool, weightless: bool
) -> list[ModelRequest]:
    """The model, unless a script or the document provides its own, and the tokenizer if it is another one."""
    model = ModelRequest(
        model_id=base.model_id,
        revision=base.revision,
        source=base.source,
        without_weights=weightless,
        access=access_of(base, MODEL_PATH, secrets),
    )
    named = base.tokenizer_id
    tokenizer = [ModelRequest(model_id=named, without_weights=weightless)] if named else []
    return tokenizer if is_without_model(base, custom=custom) else [model, *tokenizer]


def data_requests(data: DataConfig, secrets: Mapping[str, str], *, custom: bool) -> list[DataRequest]:
    """In the order of data_config.sources; a signed URL comes from the secrets."""
    return [
        DataRequest(
            location=secrets.get(source_path(i), each.path),
            format=each.format,
            split=each.split,
            custom=custom,
            access=access_of(each, f"data_config.sources.{i}", secrets),
        )
        for i, each in enumerate(data.sources)
    ]


def sources_document(data: Sequence[LocalData]) -> tuple[dict[str, Any], ...]:
    """The part of spec.json that names the files of each source."""
    return tuple(
        {
            "location": shown(source.location),
            "files": [{**asdict(file), "path": str(file.path)} for file in source.files],
            "sha256": source.sha256,
        }
        for source in data
    )


def input_fields(sources: JobInputs) -> dict[str, Any]:
    """The fields of a RunSpec that name the job's inputs on this machine."""
    model, tokenizer, reward, reward_model = sources.model, sources.tokenizer, sources.reward, sources.reward_model
    return {
        "model_path": str(model.path) if model is not None else "",
        "tokenizer_path": str(tokenizer.path) if tokenizer is not None else "",
        "data_paths": tuple(str(source.path) for source in sources.data),
        "reward_path": str(reward) if reward is not None else "",
        "reward_sha256": hashlib.sha256(reward.read_bytes()).hexdigest() if reward is not None else "",
        "reward_model_path": str(reward_model.path) if reward_model is not None else "",
        "benchmark_files": {location: str(path) for location, path in sources.benchmark_files.items()},
        "sources": sources_document(sources.data),
    }


def make_spec(
    work: WorkOrder, run: RunDirectory, sources: JobInputs, start: StartPoint, *, proxy_port: int = 0
) -> RunSpec:
    """The specification that agent and ranks read. Never contains a secret: those are passed by environment."""
    on_gpus = all(not device.is_cpu and not device.simulated for device in work.devices)
    kept = work.document.interactive_config.keep_on_failure_seconds if work.framework == parsing.CUSTOM else 0
    return RunSpec(
        job_id=work.job_id,
        attempt=work.attempt,
        node=work.node,
        name=work.name,
        run_dir=run.path,
        channel=str(run.channel),
        framework=work.framework,
        training_type=work.training_type,
        training_config=work.document.training_config.changed(environment={}).to_json(),
        data_config=work.document.data_config.to_json(),
        output_config=_output_config(work).to_json(),
        hyperparameters=_hyperparameters(work),
        **input_fields(sources),
        **program(work.document.training_config.framework, run, sources),
        device_type="cuda" if on_gpus else "cpu",
        device_indices=tuple(device.index for device in work.devices),
        device_uuids=device_uuids(work.devices) if on_gpus else (),
        gpu_memory_fraction=work.device_share / WHOLE,
        world_size=work.world_size,
        threads_per_rank=work.threads_per_rank,
        launcher=launcher(work.document),
        checkpoint_glob=checkpoint_glob(work.document),
        gpu_memory_percent=work.limits.default_gpu_memory_percent,
        resume_checkpoint=str(start.path) if start.path is not None else "",
        resume_step=start.step,
        adjustments=work.adjustments,
        inference=work.document.inference.to_json() if work.document.inference is not None else {},
        finished_shards=start.shards,
        ram_mb=work.document.resource_config.limits.ram_mb,
        proxy_port=proxy_port,
        terminal=work.document.interactive_config.terminal,
        keep_seconds=kept,
    )


def _output_config(work: WorkOrder) -> OutputConfig:
    """The job's output_config, with a default save schedule from its first node where it sets none."""
    output = work.document.output_config
    checkpoint = output.checkpoint
    interval = work.node_defaults.get("checkpoint_interval_epochs")
    if interval is None or not {"save_strategy", "save_steps"}.isdisjoint(checkpoint.given):
        return output
    return output.changed(checkpoint=checkpoint.changed(save_strategy="epoch", save_epochs=interval))


def _hyperparameters(work: WorkOrder) -> dict[str, Any]:
    try:
        return parsing.parse(work.framework, work.training_type, work.document.training_config.hyperparameters)
    except parsing.InvalidHyperparameter as error:
        raise AttemptFailed("INVALID_CONFIG", error.message) from error
    except KeyError as error:
        known = ", ".join(f"{framework}/{kind}" for framework, kind in parsing.TABLES)
        pair = f"{work.framework}/{work.training_type}"
        raise AttemptFailed("INVALID_CONFIG", f"no trainer for {pair}; known: {known}, CUSTOM") from error
