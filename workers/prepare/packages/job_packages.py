"""The package environment of a job on this node, and how its ranks start in it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from app.domain.errors import BadSpec
from app.domain.spec.model import JobDocument
from app.domain.spec.packages import Packages
from app.domain.spec.quoting import quoted
from app.domain.spec.rules import packages as rules
from app.domain.spec.rules.requirement_lines import FILE_FIELD
from app.host.uv import Uv, find_uv
from config.settings import Settings
from trainyard.protocol.run_spec import RunSpec
from workers.attempt_failed import AttemptFailed
from workers.fetching.outbound import outbound_proxy
from workers.prepare.inputs.input_library import Library
from workers.prepare.packages.build import Builder
from workers.prepare.packages.interpreters import interpreter_for
from workers.prepare.packages.request import EnvironmentRequest, scope_of
from workers.prepare.packages.requirements_file import read_requirements_file
from workers.prepare.packages.store import EnvironmentStore, StoredEnvironment
from workers.sandbox.sandbox import PROCESS, Sandbox

PACKAGES = "packages"  # in the cache directory


@dataclass(frozen=True, kw_only=True)
class JobPackages:
    """``spec`` is that of the job, with its environment."""

    spec: RunSpec
    stored: StoredEnvironment | None = None

    @property
    def readable(self) -> tuple[Path, ...]:
        """What the ranks must see: the environment at its place in the cache, read-only."""
        return (self.stored.path,) if self.stored is not None else ()


def with_packages(
    spec: RunSpec,
    document: JobDocument,
    settings: Settings,
    library: Library,
    sandbox: Sandbox,
    environment: Mapping[str, str],
    code: Path | None,
) -> JobPackages:
    """The job with its packages, if it names any; ``environment`` are its own variables. Raises AttemptFailed."""
    packages = packages_here(document, library, code)
    if packages is None:
        return JobPackages(spec=spec)
    uv = _uv()
    login = login_of(packages, environment)
    request = EnvironmentRequest(
        packages=packages,
        interpreter=interpreter_for(packages.python, settings.node.software),
        index_url=packages.index_url or settings.packages.index_url,
        project=scope_of(packages, library.project, is_confined=sandbox.kind != PROCESS, has_login=any(login)),
        uv=uv.version,
        login=login,
    )
    builder = Builder(
        program=uv.path,
        settings=settings.packages,
        fetch_allow=settings.fetch.allow,
        fetch_proxy=outbound_proxy(settings.fetch),
        sandbox=sandbox,
        data_dir=settings.data.dir.resolve(),
        software=settings.node.software,
    )
    store = EnvironmentStore(directory=library.cache_dir / PACKAGES, cache_bytes=settings.packages.cache_bytes)
    stored = store.provide(request, builder)
    return JobPackages(spec=replace(spec, packages_path=str(stored.path)), stored=stored)


def login_of(packages: Packages, environment: Mapping[str, str]) -> tuple[str, str]:
    """User and password for the job's index; that of the installation is not opened with logins of jobs."""
    if not packages.index_url:
        return "", ""
    return environment.get(rules.INDEX_USER, ""), environment.get(rules.INDEX_PASSWORD, "")


def packages_here(document: JobDocument, library: Library, code: Path | None) -> Packages | None:
    """What to install, with what a requirements file in the code names; None for nothing. Raises AttemptFailed."""
    packages = rules.packages_of(document)
    if packages is None:
        return None
    _check(document, library)  # also for a name of the file that leads out of the code
    if not packages.requirements_file:
        return packages
    if not library.rules.packages and not packages.are_certain:
        return None  # this installation has no package environments, and the file need not be there
    in_code = read_requirements_file(packages, code, library.claim_around(code) if code is not None else None)
    training = document.training_config.changed(packages=in_code.packages)
    found = rules.packages_of(whole := document.changed(training_config=training))
    if found is not None and in_code.was_found:
        _check(whole, library, file=packages.requirements_file)
    return found


def _check(document: JobDocument, library: Library, *, file: str = "") -> None:
    """An older API may have let it pass, or have had other settings. Raises AttemptFailed.

    ``file`` names the requirements file that the packages came from.
    """
    try:
        for rule in rules.RULES:
            rule(document)
        rules.check(document, library.rules.of(library.project))
    except BadSpec as error:
        where = f"{FILE_FIELD}: {quoted(file)}" if file else error.field or rules.FIELD
        raise AttemptFailed("INVALID_CONFIG", f"{where}: {error.message}") from error


def _uv() -> Uv:
    """Raises AttemptFailed."""
    found = find_uv()
    if found is None:
        raise AttemptFailed(
            "INTERNAL", "this node can install no packages: uv is missing; pip install 'trainyard[train]'"
        )
    return found
