"""The container image of a job or role, as a section of the job document."""

from dataclasses import dataclass

from app.domain.spec.section import Section


@dataclass(frozen=True, kw_only=True)
class Image(Section):
    """The container image in which a script runs; without a reference it runs with the node's programs."""

    reference: str = ""
    pull_policy: str = "if_missing"
    read_only: bool = False


NO_IMAGE = Image()
