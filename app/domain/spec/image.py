"""The container image of a job or role, and logins of registries, as sections of the job document."""

from dataclasses import dataclass, field

from app.domain.spec.section import Section


@dataclass(frozen=True, kw_only=True)
class Image(Section):
    """The container image in which a script runs; without a reference it runs with the node's programs."""

    reference: str = ""
    pull_policy: str = "if_missing"
    read_only: bool = False


NO_IMAGE = Image()


@dataclass(frozen=True, kw_only=True)
class RegistryLogin(Section):
    """What opens one registry, or the repositories below one of its paths, for the job's images."""

    registry: str = ""  # HOST[:PORT][/PATH]
    username: str = ""
    password: str = field(default="", repr=False)
