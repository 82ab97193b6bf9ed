"""The packages of a script, as a section of the job document."""

from dataclasses import dataclass

from app.domain.spec.section import Section


@dataclass(frozen=True, kw_only=True)
class Packages(Section):
    """The virtual environment of a script: what is installed into it, beside the node's own packages."""

    requirements: tuple[str, ...] = ()
    requirements_file: str = ""  # a path in the code: a file with more requirements, or a lock
    requirements_file_required: bool = True  # False: a job whose code has no such file runs without it
    lock: str = ""  # requirements with hashes; exactly these are installed
    python: str = ""  # empty: the node's
    index_url: str = ""  # empty: the installation's, or PyPI
    allow_source_builds: bool = False

    @property
    def are_certain(self) -> bool:
        """Whether the job installs packages whatever its code has."""
        in_code = self.requirements_file and self.requirements_file_required
        return bool(self.requirements or self.lock or in_code)
