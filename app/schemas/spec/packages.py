"""Schema of ``training_config.packages``."""

import re

from marshmallow import ValidationError, fields, validate
from packaging.requirements import InvalidRequirement, Requirement

from app.domain.spec.packages import Packages
from app.domain.spec.rules.requirement_lines import (
    CONTROL,
    LONGEST_LOCK,
    LONGEST_REQUIREMENT,
    MOST_REQUIREMENTS,
    malformed,
)
from app.schemas.documents import DocumentSchema
from app.schemas.strict_fields import Flag, Matching, Text, says

_PYTHON = re.compile(r"3\.[1-9]?[0-9](?:\.[0-9]{1,2})?")


class RequirementText(fields.String):
    """A requirement of one package, as PEP 508 describes it."""

    def __init__(self) -> None:
        super().__init__(validate=validate.Length(1, LONGEST_REQUIREMENT))

    def _deserialize(self, value: object, *args: object, **kwargs: object) -> str:
        text: str = super()._deserialize(value, *args, **kwargs)
        try:
            Requirement(text)
        except (InvalidRequirement, RecursionError) as error:
            raise ValidationError(malformed(text)) from error
        if CONTROL.search(text):  # which packaging takes for a part of a URL
            raise ValidationError(malformed(text))
        return text


class PackagesSchema(DocumentSchema):
    requirements = fields.List(
        RequirementText(),
        validate=validate.Length(max=MOST_REQUIREMENTS),
        **says("Packages as in a requirements file, such as numpy==2.1.0; without lines that begin with -"),
    )
    requirements_file = Text(
        **says("A requirements file in the code, such as requirements.txt; one with hashes is a lock")
    )
    requirements_file_required = Flag(
        **says("false: a job whose code has no such file runs without it", default=Packages.requirements_file_required)
    )
    lock = Text(
        longest=LONGEST_LOCK,
        **says(
            "The text of a requirements file with hashes, as uv pip compile --generate-hashes writes it: exactly this "
            "is installed"
        ),
    )
    python = Matching(
        _PYTHON,
        "must be a version of Python such as 3.11",
        error_messages={"invalid": 'must be a string: write it in quotes, "3.11"'},
        **says("Version of Python, which the node must have; default: the node's own"),
    )
    index_url = Text(**says("Index of packages, https://HOST/PATH; default: the installation's own, or PyPI"))
    allow_source_builds = Flag(
        **says(
            "true: packages without wheels are built from their sources, in a sandbox; by default only wheels are "
            "installed",
            default=Packages.allow_source_builds,
        )
    )
