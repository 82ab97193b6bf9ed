"""Rules of `resource_config.image`; each of RULES is a function that raises."""

from collections.abc import Callable

from app.domain.errors import BadSpec
from app.domain.spec.document import is_custom
from app.domain.spec.frameworks.custom import MPI, launcher
from app.domain.spec.locations.images import FIELD, ImageReference, parse, why_not_from
from app.domain.spec.locations.paths import ReadingRules
from app.domain.spec.model import JobDocument


def image_of(document: JobDocument) -> ImageReference | None:
    """The image in which the job's script runs; None for one that runs with the node's programs. Raises BadSpec."""
    reference = document.resource_config.image.reference
    return parse(reference) if reference else None


def image_is_of_a_script(document: JobDocument) -> None:
    if document.resource_config.image.reference and not is_custom(document):
        raise BadSpec(
            f"images are for the scripts and commands of framework CUSTOM: {document.training_config.framework.type} "
            "runs with the node's programs; leave image out",
            field=FIELD,
        )


def image_has_a_form(document: JobDocument) -> None:
    image_of(document)


def image_starts_its_own_ranks(document: JobDocument) -> None:
    if document.resource_config.image.reference and launcher(document) == MPI:
        raise BadSpec(
            "mpirun starts ranks with the node's programs; leave image out, or have the script start its own processes "
            "without the launcher mpi",
            field=FIELD,
        )


def refuse_foreign_image(document: JobDocument, rules: ReadingRules) -> None:
    """Raise BadSpec for an image of a registry that jobs may not use."""
    reference = image_of(document)
    why = why_not_from(reference, rules.image_sources, require_digest=rules.image_digests) if reference else ""
    if why:
        raise BadSpec(why, field=FIELD)


RULES: tuple[Callable[[JobDocument], None], ...] = (image_is_of_a_script, image_has_a_form, image_starts_its_own_ranks)
