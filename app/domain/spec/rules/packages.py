"""Rules of ``training_config.packages``: what a script's package environment is made of.

The schema has checked that each requirement and the version of Python are well-formed.
"""

import re
from collections.abc import Callable, Iterator

from app.domain.errors import BadSpec
from app.domain.spec.document import is_custom
from app.domain.spec.locations.code import path_in_bundle
from app.domain.spec.locations.hosts import authority_of, check_host, refuse_private_host
from app.domain.spec.locations.paths import ReadingRules
from app.domain.spec.model import JobDocument
from app.domain.spec.packages import Packages
from app.domain.spec.quoting import quoted
from app.domain.spec.rules.lock_lines import locked_packages
from app.domain.spec.rules.requirement_lines import CONTROL, FILE_FIELD
from app.domain.spec.secrets import unsigned

FIELD = "training_config.packages"
# Of training_config.environment: the login of index_url, which the ranks have as well.
INDEX_USER, INDEX_PASSWORD = "UV_INDEX_USERNAME", "UV_INDEX_PASSWORD"
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_FROM = re.compile(rf"\s*{_NAME.pattern}\s*(?:\[[^\]]*\])?\s*@\s*([^\s;]\S*)")
_SEPARATORS = re.compile(r"[-_.]+")
_GIT = re.compile(r"git\+https://[^@\s]+@[0-9a-f]{40}(?:#\S*)?")


def packages_of(document: JobDocument) -> Packages | None:
    """What the job asks for; None where it runs with the node's packages."""
    packages = document.training_config.packages
    return packages if packages is not None and (packages.are_certain or packages.requirements_file) else None


def resolvable(document: JobDocument) -> bool:
    """Whether an index can be asked what the packages need: not for a lock, which says it, nor to build sources."""
    packages = packages_of(document)
    return packages is not None and bool(packages.requirements) and not (packages.lock or packages.allow_source_builds)


def name_of(requirement: str) -> str:
    """The normalized name of the package, by the rule of package indexes."""
    found = _NAME.match(requirement.strip())
    return _SEPARATORS.sub("-", found[0]).lower() if found is not None else ""


def url_of(requirement: str) -> str:
    """What stands behind ``name @``, a URL or a path; empty for a requirement that comes from the index."""
    found = _FROM.match(requirement)
    return found[1] if found is not None else ""


def needs_source(requirement: str) -> bool:
    """Whether the package has no wheel where it comes from."""
    url = url_of(requirement)
    return bool(url) and not url.partition("#")[0].partition("?")[0].endswith(".whl")


def packages_are_of_a_script(document: JobDocument) -> None:
    packages = document.training_config.packages
    if packages is None:
        return
    if not is_custom(document):
        raise BadSpec(
            f"packages are for the scripts and commands of framework CUSTOM: {document.training_config.framework.type} "
            "runs with the node's packages; leave packages out",
            field=FIELD,
        )
    if document.resource_config.image.reference:
        raise BadSpec(
            "a job in a container image has the image's packages and interpreter; add them to the image, or leave "
            "resource_config.image out",
            field=FIELD,
        )
    if packages_of(document) is None:
        raise BadSpec(
            'name packages in requirements, such as ["numpy==2.1.0"], name a requirements_file of the code, or give '
            "the text of a lock",
            field=FIELD,
        )


def requirements_file_is_in_the_code(document: JobDocument) -> None:
    packages, framework = document.training_config.packages, document.training_config.framework
    if packages is None or not packages.requirements_file:
        return
    if not framework.custom_code_dir and not framework.custom_script_path:
        raise BadSpec(
            "a command alone has no code that a requirements file could be in; set framework.custom_code_dir, or name "
            "packages in requirements",
            field=FILE_FIELD,
        )
    if not path_in_bundle(packages.requirements_file):
        raise BadSpec(
            f"{quoted(packages.requirements_file)} does not name a file in the code; name it by its path there, such "
            "as requirements.txt",
            field=FILE_FIELD,
        )


def requirements_are_remote(document: JobDocument) -> None:
    """Each package once, from an index or by https; where its code runs at installation, only if the job says so."""
    packages, seen = document.training_config.packages, set[str]()
    for number, requirement in enumerate(packages.requirements if packages is not None else ()):
        field, name, url = f"{FIELD}.requirements.{number}", name_of(requirement), url_of(requirement)
        if CONTROL.search(requirement):
            raise BadSpec(
                f"{requirement!r:.200} has a line break or another control character; leave it out", field=field
            )
        if name in seen:
            raise BadSpec(f"{requirement!r:.200}: {name} is named twice; keep one of them", field=field)
        seen.add(name)
        if url:
            _check_url(requirement, url, field)
        if packages is not None and needs_source(requirement) and not packages.allow_source_builds:
            raise BadSpec(
                f"{requirement!r:.200} is built from its source, which runs its code; name a wheel, or set "
                "allow_source_builds",
                field=field,
            )


def lock_is_complete(document: JobDocument) -> None:
    """Every line of the lock names one version and its hashes, and it has what the requirements name."""
    packages = document.training_config.packages
    if packages is None or not packages.lock:
        return
    locked = set(_locked_names(packages.lock))
    missing = [each for each in packages.requirements if name_of(each) not in locked]
    if missing:
        raise BadSpec(
            f"{missing[0]!r:.200} is in requirements and not in the lock; make the lock again (uv pip compile "
            "--generate-hashes), or leave requirements out",
            field=f"{FIELD}.lock",
        )


def names_of(packages: Packages) -> set[str]:
    """Normalized names of the packages that the job names itself. Raises BadSpec."""
    return set(_locked_names(packages.lock)) if packages.lock else set(map(name_of, packages.requirements))


def check(document: JobDocument, rules: ReadingRules) -> None:
    """Raise BadSpec for what this installation does not allow."""
    packages = document.training_config.packages
    if packages is None:
        return
    if not rules.packages and packages.are_certain:
        raise BadSpec(
            "this installation has no package environments (TRAINYARD_PACKAGES_ENABLED); use the node's packages, or "
            "a container image",
            field=FIELD,
        )
    for number, requirement in enumerate(packages.requirements):
        if url := url_of(requirement):
            refuse_private_host(url.removeprefix("git+"), rules.fetch_allow, field=f"{FIELD}.requirements.{number}")
    if packages.index_url:
        _check_index(packages.index_url, rules.fetch_allow)


def _check_url(requirement: str, url: str, field: str) -> None:
    if url.startswith("git+"):
        if not _GIT.fullmatch(url):
            raise BadSpec(
                f"{requirement!r:.200}: a repository is named by git+https://HOST/PATH@COMMIT, with the 40 digits of "
                "the commit",
                field=field,
            )
    elif not url.startswith("https://"):
        raise BadSpec(
            f"{requirement!r:.200}: packages come from an index, by https:// or by git+https://; files of this "
            "machine are no packages (put code into framework.custom_code_dir)",
            field=field,
        )
    if "@" in authority_of(url) or unsigned(url) != url:
        raise BadSpec(
            "the URL has credentials, which would be stored and shown; put the package into an index, and its login "
            f"into training_config.environment ({INDEX_USER}, {INDEX_PASSWORD})",
            field=field,
        )
    check_host(url.removeprefix("git+"), field=field)


def _check_index(url: str, allow: tuple[str, ...]) -> None:
    field = f"{FIELD}.index_url"
    if not url.startswith(("https://", "http://")):
        raise BadSpec(
            f"{url!r:.200}: an index is named by https://HOST/PATH, such as https://pypi.org/simple", field=field
        )
    if "@" in authority_of(url) or "?" in url or "#" in url:
        raise BadSpec(
            "the URL has credentials or parameters, which would be stored and shown; write https://HOST/PATH, and its "
            f"login into training_config.environment ({INDEX_USER}, {INDEX_PASSWORD}): it is encrypted there",
            field=field,
        )
    refuse_private_host(url, allow, field=field)
    check_host(url, field=field)


def _locked_names(lock: str) -> Iterator[str]:
    """Raises BadSpec for the first line that a lock can't have."""
    return (name_of(each.name) for each in locked_packages(lock))


RULES: tuple[Callable[[JobDocument], None], ...] = (
    packages_are_of_a_script,
    requirements_file_is_in_the_code,
    requirements_are_remote,
    lock_is_complete,
)
