"""Rules of `resource_config.registry_logins`."""

import re
from collections.abc import Sequence

from app.domain.errors import BadSpec
from app.domain.spec.document import images
from app.domain.spec.locations.images import closest, is_registry, parse
from app.domain.spec.model import JobDocument
from app.domain.spec.quoting import quoted

FIELD = "resource_config.registry_logins"
_VISIBLE = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]+")


def logins_open_images(document: JobDocument) -> None:
    """Raise BadSpec for a login that is none, that is given twice, or that no image of the job and its roles needs."""
    logins = document.resource_config.registry_logins
    registries = [login.registry for login in logins]
    used = _used(document)
    for number, login in enumerate(logins):
        field = f"{FIELD}.{number}"
        if not is_registry(login.registry):
            raise BadSpec(
                f"{quoted(login.registry) or 'this'} is no registry: write HOST, HOST:PORT or HOST:PORT/PATH, as "
                "references to images begin, without https:// and a tag",
                field=f"{field}.registry",
            )
        if login.registry in registries[:number]:
            raise BadSpec(f"{login.registry} is given twice; keep one of them", field=f"{field}.registry")
        for name, value in (("username", login.username), ("password", login.password)):
            if _VISIBLE.fullmatch(value) is None:
                raise BadSpec(f"{name} is a text without line breaks that is not empty", field=f"{field}.{name}")
        if ":" in login.username:
            raise BadSpec("username has no colon (RFC 7617)", field=f"{field}.username")
        if number not in used:
            raise _unneeded(number, login.registry)


def with_needed_logins(document: JobDocument) -> JobDocument:
    """Without logins that no image needs: a sweep has those of all trials. Raises BadSpec for an image that is none."""
    resources = document.resource_config
    used = _used(document)
    if len(used) == len(resources.registry_logins):
        return document
    kept = tuple(login for number, login in enumerate(resources.registry_logins) if number in used)
    return document.changed(resource_config=resources.changed(registry_logins=kept))


def refuse_logins_without_images(trials: Sequence[JobDocument]) -> None:
    """Raise BadSpec for a login of a sweep that no trial needs. All trials have the same logins."""
    used = set[int]().union(*map(_used, trials))
    for number, login in enumerate(trials[0].resource_config.registry_logins if trials else ()):
        if number not in used:
            raise _unneeded(number, login.registry)


def _used(document: JobDocument) -> set[int]:
    """The numbers of the logins that images need."""
    registries = [login.registry for login in document.resource_config.registry_logins]
    if not registries:
        return set()
    found = (closest(parse(image.reference), registries) for image, _ in images(document))
    return {number for number in found if number is not None}


def _unneeded(number: int, registry: str) -> BadSpec:
    return BadSpec(
        f"no image of the job is read with the login of {registry}; name an image of it as HOST/NAME, or leave the "
        "login out",
        field=f"{FIELD}.{number}.registry",
    )
