"""The container image of a job on this node, and how its ranks start in it."""

from dataclasses import dataclass, replace
from pathlib import Path

from app.domain.errors import BadSpec
from app.domain.spec.locations.images import FIELD
from app.domain.spec.model import Framework, JobDocument
from app.domain.spec.role_documents import image_at
from app.domain.spec.rules.image import image_of, refuse_foreign_image
from app.host.gpu_devices import GPU_LIBRARIES
from app.host.images import lack_of_images
from app.host.overlays import UPPER
from app.services.access import image_policies
from app.services.rows import Session
from config.settings import Settings
from trainyard.protocol.run_spec import ImageEnvironment, RunSpec
from workers.attempt_failed import AttemptFailed
from workers.images.image_config import ImageConfig
from workers.images.image_store import ImageStore, StoredImage
from workers.images.named_field import naming
from workers.images.registry_logins import login_for
from workers.prepare.inputs.input_library import Library
from workers.prepare.inputs.resolve_inputs import find_image
from workers.run_dir.layout import OVERLAY
from workers.sandbox.node_python import HOOKS, python_command
from workers.sandbox.placements import ImageConflict, check_image_path
from workers.sandbox.sandbox import PROCESS, Sandbox
from workers.sandbox.spec import Account, ImageRoot

IMAGES = "images"  # in the cache directory


@dataclass(frozen=True, kw_only=True)
class JobImage:
    """``spec`` is that of the job, with what it takes from its image; ``field`` names the image in its document."""

    spec: RunSpec
    root: ImageRoot | None = None
    account: Account = Account()  # noqa: RUF009 – frozen
    stored: StoredImage | None = None
    field: str = FIELD


def with_image(
    spec: RunSpec, document: JobDocument, settings: Settings, library: Library, sandbox: Sandbox
) -> JobImage:
    """The job in its image, if it has one here. Raises AttemptFailed."""
    field = f"{image_at(document)}{FIELD}"
    with naming(field):
        return replace(_with_image(spec, document, settings, library, sandbox), field=field)


def _with_image(
    spec: RunSpec, document: JobDocument, settings: Settings, library: Library, sandbox: Sandbox
) -> JobImage:
    rules, image = library.rules.of(library.project), document.resource_config.image
    try:
        reference = image_of(document)
        if reference is None:
            return JobImage(spec=spec)
        refuse_foreign_image(document, rules)
    except BadSpec as error:  # an older API may have let it pass, or have had other settings
        raise AttemptFailed("INVALID_CONFIG", f"{FIELD}: {error.message}") from error
    lack = "its jobs run without a sandbox" if sandbox.kind == PROCESS else lack_of_images(settings.data.dir)
    if lack:
        raise AttemptFailed("INTERNAL", f"this node can use no images: {lack}")
    if reference.is_local:
        reference = replace(reference, name=str(find_image(library, reference.name)))
    store = ImageStore(
        directory=library.cache_dir / IMAGES,
        data_dir=settings.data.dir.resolve(),
        settings=settings.images,
        sandbox=sandbox,
        project=library.project,
        login=login_for(reference, document, library.secrets),
    )
    stored = store.provide(reference, image.pull_policy)
    made = JobImage(
        spec=_in_image(spec, stored.config),
        root=ImageRoot(directory=stored.root, read_only=image.read_only),
        account=stored.config.account(stored.root),
        stored=stored,
    )
    if document.tasks:  # the programs are the roles'
        return made
    return replace(made, spec=program_in(made, made.spec, document.training_config.framework))


def refuse_foreign_images(session: Session, project: str, document: JobDocument) -> None:
    """The project's list may have changed since the job was accepted. Raises AttemptFailed."""
    try:
        image_policies.refuse_foreign_images(session, project, document)
    except BadSpec as error:
        raise AttemptFailed("INVALID_CONFIG", f"{error.field}: {error.message}") from error


def program_in(image: JobImage, spec: RunSpec, framework: Framework) -> RunSpec:
    """What the job or role says about its program wins; what it leaves open its image decides. Raises AttemptFailed."""
    if image.root is None or image.stored is None:
        return spec
    with naming(image.field):
        at = image.field.removesuffix(FIELD)
        of_command = f"{at}training_config.{'' if at else 'framework.'}custom_command"
        found = _with_program(spec, framework, image.stored.config, of_command)
        _make_working_directory(found, image.root)
    return found


def _in_image(spec: RunSpec, config: ImageConfig) -> RunSpec:
    environment = dict(config.environment)
    if spec.device_type == "cuda":
        libraries = (str(GPU_LIBRARIES), environment.get("LD_LIBRARY_PATH", ""))
        environment["LD_LIBRARY_PATH"] = ":".join(filter(None, libraries))
    return replace(
        spec, image=ImageEnvironment(python=tuple(python_command()), hooks=str(HOOKS), environment=environment)
    )


def _with_program(spec: RunSpec, framework: Framework, config: ImageConfig, of_command: str) -> RunSpec:
    """``of_command``: the field that would name a program in place of the image's. Raises AttemptFailed."""
    found = spec
    # A script's own checkpoints are looked for in its working directory.
    if not (framework.custom_code_dir or spec.script or spec.checkpoint_glob) and config.directory:
        found = replace(found, directory=config.directory)
    if spec.script or spec.command:
        return found
    command = (*config.entrypoint, *(framework.custom_arguments or config.command))
    if not command:
        raise AttemptFailed(
            "INVALID_CONFIG", f"resource_config.image: it has neither an entrypoint nor a command; set {of_command}"
        )
    return replace(found, command=command, arguments=())


def _make_working_directory(spec: RunSpec, root: ImageRoot) -> None:
    """Make the working directory that the image names where its files do not have it. Raises AttemptFailed."""
    place = Path(spec.directory)
    if place.is_relative_to(spec.run_dir):
        return
    try:
        check_image_path(root.directory, place)
    except ImageConflict as error:
        raise AttemptFailed("INVALID_CONFIG", f"resource_config.image: {error}") from error
    spec.run_dir.joinpath(OVERLAY, UPPER, *place.parts[1:]).mkdir(parents=True, exist_ok=True)
