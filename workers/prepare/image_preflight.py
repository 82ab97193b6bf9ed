"""Preflight of a job's container images: whether registries have them for the project, before a device is taken."""

import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from app.domain.errors import BadSpec
from app.domain.spec.document import images
from app.domain.spec.image import RegistryLogin
from app.domain.spec.locations.images import NEVER, ImageReference, parse, why_not_from
from app.domain.spec.model import JobDocument
from app.host.images import lack_of_skopeo
from app.services.requests.storage_access import reading_rules
from config.settings import Settings
from workers.attempt_failed import AttemptFailed
from workers.fetching.directory_locks import DirectoryLock, sweep
from workers.images.image_tools import ImageTools
from workers.images.named_field import naming
from workers.images.registry_logins import login_for
from workers.prepare.inspection_report import Report
from workers.sandbox.sandbox import Sandbox, SandboxUnavailable, choose_sandbox

_DIRECTORY = "image-preflight"  # in the directory of runs
_LEAST_SECONDS = 1.0
_ASK_SECONDS = 15.0  # a registry that does not answer must not hold up a job that a node may start


def inspect_image(
    settings: Settings, project: str, document: JobDocument, secrets: Mapping[str, str], seconds: float
) -> Report:
    """Ask registries for the manifests of the images of the job and its roles, unless only nodes that have one may run.

    ``secrets`` are the job's, opened. What is not asked for within ``seconds``, or may not be by this machine's
    settings, is left to the node.
    """
    try:
        asked = _asked(document)
    except BadSpec as error:  # an older API may have let it pass
        return _errors(f"{error.field}: {error.message}")
    if not asked:
        return {}
    if lack := lack_of_skopeo():
        return {"left_out": [f"this coordinator asks no registry: {lack}"]}
    try:
        sandbox = choose_sandbox(settings.node.sandbox)
    except SandboxUnavailable as error:
        return {"left_out": [f"this coordinator asks no registry: {error}"]}
    rules, until, reports = reading_rules(settings).of(project), time.monotonic() + seconds, list[Report]()
    for reference, field in asked.items():
        if why := why_not_from(reference, rules.image_sources, require_digest=rules.image_digests):
            reports.append({"left_out": [f"{field}: {why}"]})
        elif reports and (seconds := until - time.monotonic()) < _LEAST_SECONDS:
            reports.append({"left_out": [f"no time was left to ask for {reference}"]})
        else:
            login = login_for(reference, document, secrets)
            reports.append(_ask(settings, project, _Asked(reference, field, login), sandbox, seconds))
    return _together(reports)


def _asked(document: JobDocument) -> dict[ImageReference, str]:
    """The images of registries, each with the first field that names it. Raises BadSpec."""
    asked = dict[ImageReference, str]()
    for image, field in images(document):
        try:
            reference = parse(image.reference)
        except BadSpec as error:
            error.field = field
            raise
        if not reference.is_local and image.pull_policy != NEVER:
            asked.setdefault(reference, field)
    return asked


def _together(reports: Sequence[Report]) -> Report:
    """One report of those of several images: the first error, or what was found and what is left to the node."""
    failed = next((report for report in reports if report.get("errors")), None)
    if failed is not None or len(reports) == 1:
        return failed or reports[0]
    found = [report["image"] for report in reports if "image" in report]
    left_out = [reason for report in reports for reason in report.get("left_out", [])]
    return {**({"images": found} if found else {}), **({"left_out": left_out} if left_out else {})}


class _Asked(NamedTuple):
    """``field`` names the image in the job's document."""

    reference: ImageReference
    field: str
    login: RegistryLogin | None


def _ask(settings: Settings, project: str, asked: _Asked, sandbox: Sandbox, seconds: float) -> Report:
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
            login=asked.login,
        )
        try:
            with naming(asked.field):
                digest = tools.digest(asked.reference)
        except AttemptFailed as failure:
            # Nodes may have logins that this machine does not have, or a way to a registry that it can't reach.
            nodes_know_more = tools.auth_file is not None and not tools.has_logins
            if failure.error_type != "INVALID_CONFIG" or nodes_know_more:
                return {"left_out": [failure.message]}
            return _errors(failure.message)
    return {"image": {"reference": str(asked.reference), "digest": f"sha256:{digest}"}}


def _errors(message: str) -> Report:
    return {"errors": [{"error_type": "INVALID_CONFIG", "message": message}]}
