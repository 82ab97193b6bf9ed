"""The job's own login for the registry of an image."""

from collections.abc import Mapping

from app.domain.spec.image import RegistryLogin
from app.domain.spec.locations.images import ImageReference, closest
from app.domain.spec.model import JobDocument
from app.domain.spec.secrets import registry_password_path


def login_for(reference: ImageReference, document: JobDocument, secrets: Mapping[str, str]) -> RegistryLogin | None:
    """With its password; None where the operator's logins count. ``secrets`` are the job's, opened."""
    logins = document.resource_config.registry_logins
    number = closest(reference, [login.registry for login in logins])
    return None if number is None else logins[number].changed(password=secrets[registry_password_path(number)])
