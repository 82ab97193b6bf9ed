"""Secrets for pulling images that a document names → logins of registries of the native document."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from app.domain.errors import BadSpec
from app.domain.spec.image import RegistryLogin
from app.domain.spec.locations.images import ImageReference, closest, parse
from app.http.context import backend
from app.schemas.spec.field_verdicts import warning
from app.services.access.pull_secrets import logins_of, unusable
from app.services.access.secret_files import LOGINS

_NOT_SET = "secrets are not used: the operator has not set TRAINYARD_SECURITY_SECRETS_DIR"
_UNNEEDED = "it has no login that an image needs"
_OPERATORS = "images are read with the operator's logins for the project (TRAINYARD_IMAGES_AUTH_FILE)"


def registry_logins(
    project: str, names: Sequence[str], document: Mapping[str, Any], warnings: list[str], *, field: str
) -> dict[str, Any]:
    """A field of ``resource_config``, where images of the document need logins.

    Of logins for one registry the first counts. The schema has not seen the document yet.

    Secrets without an effect have a warning, as Kubernetes passes over them. Raises BadSpec for one that can't be read.
    """
    references, directory = list(_references(document)), backend().settings.security.secrets_dir
    if directory is None or not references:
        why = _NOT_SET if references else "no image of a registry is used"
        warnings += [warning(f"{field}.{name}", why) for name in names]
        return {}
    owners, lacking = dict[str, str](), dict[str, str]()  # registry → secret; the latter has no password for it
    logins, idle = list[RegistryLogin](), dict.fromkeys(names, _UNNEEDED)
    for name in idle:
        own = logins_of(directory, project, name, field=field)
        logins += [login for login in own if login.password and owners.setdefault(login.registry, name) == name]
        lacking |= {login.registry: name for login in own if not login.password}
        if not own:
            idle[name] = f"the project {project} has no secret {name} with the key {LOGINS}: {_OPERATORS}"
    _refuse_lacking(project, references, owners, lacking, field=field)
    used = {closest(reference, [login.registry for login in logins]) for reference in references}
    found = [login for number, login in enumerate(logins) if number in used]
    for login in found:
        idle.pop(owners[login.registry], None)
    warnings += [warning(f"{field}.{name}", why) for name, why in idle.items()]
    return {"registry_logins": [login.to_json() for login in found]} if found else {}


def _refuse_lacking(
    project: str,
    references: Sequence[ImageReference],
    owners: Mapping[str, str],
    lacking: Mapping[str, str],
    *,
    field: str,
) -> None:
    """Raise BadSpec for an image whose closest entry has no password."""
    registries = [*owners, *(each for each in lacking if each not in owners)]
    for reference in references:
        nearest = closest(reference, registries)
        if nearest is not None and nearest >= len(owners):
            registry = registries[nearest]
            why = f"{registry}, where {reference} lies, has no user and password"
            raise unusable(project, lacking[registry], why, field=field)


def _references(document: Mapping[str, Any]) -> Iterator[ImageReference]:
    """Of the job and its roles; the rules of the document report those that are none."""
    for part in (document, *document.get("tasks", [])):
        image = part.get("resource_config", {}).get("image") or {}
        with suppress(BadSpec):
            if not (reference := parse(image.get("reference", ""))).is_local:
                yield reference
