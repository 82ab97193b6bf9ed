"""Preflight of a job's container image: whether its registry has it for the project, before a device is taken."""

from app.domain.errors import BadSpec
from app.domain.spec.locations.images import NEVER, ImageReference
from app.domain.spec.model import JobDocument
from app.domain.spec.rules.image import image_of
from app.host.images import lack_of_skopeo
from config.settings import Settings
from workers.attempt_failed import AttemptFailed
from workers.fetching.directory_locks import DirectoryLock, sweep
from workers.images.image_tools import ImageTools
from workers.prepare.inspection_report import Report
from workers.sandbox.sandbox import Sandbox, SandboxUnavailable, choose_sandbox

_DIRECTORY = "image-preflight"  # in the directory of runs
_ASK_SECONDS = 15.0  # a registry that does not answer must not hold up a job that a node may start


def inspect_image(settings: Settings, project: str, document: JobDocument, seconds: float) -> Report:
    """Ask the registry for the image's manifest, unless only nodes that have the image may run the job."""
    try:
        reference = image_of(document)
    except BadSpec as error:  # an older API may have let it pass
        return _errors(error.message)
    if reference is None or reference.is_local or document.resource_config.image.pull_policy == NEVER:
        return {}
    if lack := lack_of_skopeo():
        return {"left_out": [f"this coordinator asks no registry: {lack}"]}
    try:
        sandbox = choose_sandbox(settings.node.sandbox)
    except SandboxUnavailable as error:
        return {"left_out": [f"this coordinator asks no registry: {error}"]}
    return _ask(settings, project, reference, sandbox, seconds)


def _ask(settings: Settings, project: str, reference: ImageReference, sandbox: Sandbox, seconds: float) -> Report:
    data_dir = settings.data.dir.resolve()
    scratch = data_dir / "run" / _DIRECTORY
    sweep(scratch)
    with DirectoryLock(scratch, "image") as work:
        tools = ImageTools.of(
            settings.images,
            project,
            sandbox,
            directory=work.path,
            data_dir=data_dir,
            seconds=min(seconds, _ASK_SECONDS),
        )
        try:
            digest = tools.digest(reference)
        except AttemptFailed as failure:
            # Nodes may have logins that this machine does not have, or a way to a registry that it can't reach.
            nodes_know_more = tools.auth_file is not None and not tools.has_logins
            if failure.error_type != "INVALID_CONFIG" or nodes_know_more:
                return {"left_out": [failure.message]}
            return _errors(failure.message)
    return {"image": {"reference": str(reference), "digest": f"sha256:{digest}"}}


def _errors(message: str) -> Report:
    return {"errors": [{"error_type": "INVALID_CONFIG", "message": message}]}
