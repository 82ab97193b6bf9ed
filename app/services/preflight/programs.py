"""A CUSTOM job's script, code directory and images: where they are, and what is wrong with those of this machine."""

import os.path
from collections.abc import Iterator, Sequence
from contextlib import suppress

from app.domain.errors import BadSpec
from app.domain.spec.document import images
from app.domain.spec.image import Image
from app.domain.spec.locations.code import is_bundle, path_in_bundle
from app.domain.spec.locations.images import NEVER, ImageReference, parse
from app.domain.spec.model import Framework, JobDocument
from app.domain.spec.rules.packages import packages_of

SCRIPT, CODE = "custom script", "code directory"


def locations(framework: Framework) -> Iterator[tuple[str, str]]:
    """(location, noun) of a CUSTOM job's script and code; what a node unpacks is not here."""
    script, code = framework.custom_script_path, framework.custom_code_dir
    if code and is_bundle(code):
        return
    if script:
        yield script, SCRIPT
    if code:
        yield code, CODE


def images_of(document: JobDocument) -> Iterator[tuple[ImageReference, Image]]:
    """Of the job and its roles, without those that submission refuses: the node reports the error."""
    for image, _ in images(document):
        with suppress(BadSpec):
            yield parse(image.reference), image


def asks_registries(document: JobDocument) -> bool:
    return any(not reference.is_local and image.pull_policy != NEVER for reference, image in images_of(document))


def unusable(document: JobDocument, noun: str, paths: Sequence[str]) -> str:
    """What is wrong with a script or code directory that exists; empty for nothing, and for other inputs."""
    if noun == SCRIPT and all(map(os.path.isdir, paths)):
        return "is a directory; name the file to run"
    if noun != CODE:
        return ""
    directories = list(filter(os.path.isdir, paths))
    if not directories:
        return "is not a directory; name the one that has the code"
    packages = packages_of(document)
    name = packages.requirements_file if packages is not None and packages.requirements_file_required else ""
    if not path_in_bundle(name) or any(os.path.lexists(f"{each}/{name}") for each in directories):
        return ""
    return f"has no {name} (training_config.packages.requirements_file); add it, or name packages in requirements"
