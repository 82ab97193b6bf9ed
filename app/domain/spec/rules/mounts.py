"""Rules of `resource_config.mounts`; each is a function that raises."""

import posixpath
from collections.abc import Callable, Iterator

from app.domain.errors import BadSpec
from app.domain.spec.document import is_custom
from app.domain.spec.locations.paths import ReadingRules
from app.domain.spec.model import CLAIM, CODE, DATA, EMPTY, FILES, MEMORY, MODEL, JobDocument, Mount
from app.domain.spec.rules.model import is_without_model

# Directories that the sandbox itself fills: with the machine's programs, devices and the job's temporary files.
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/proc", "/sys", "/dev")
_MOST_BYTES = 262_144  # of the files of a document
# Fields of one type of mount alone.
_FIELDS = {
    "source": DATA,
    **dict.fromkeys(("files", "mode"), FILES),
    **dict.fromkeys(("claim", "read_only", "create"), CLAIM),
}
_TEMPORARY = ("/tmp", "/var/tmp")  # noqa: S108 – paths to refuse


def _mounts(document: JobDocument) -> Iterator[tuple[str, Mount]]:
    """Each mount with the path of its object in the document."""
    for number, mount in enumerate(document.resource_config.mounts):
        yield f"resource_config.mounts.{number}", mount


def mounts_are_of_scripts(document: JobDocument) -> None:
    if document.resource_config.mounts and not is_custom(document):
        raise BadSpec(
            f"mounts are for the scripts of framework CUSTOM: {document.training_config.framework.type} reads its "
            "inputs where they are; leave mounts out",
            field="resource_config.mounts",
        )


def mount_paths_are_free(document: JobDocument) -> None:
    seen: set[str] = set()
    for field, mount in _mounts(document):
        path = mount.path
        if problem := why_not_free(path) or ("is the path of two mounts; leave one out" if path in seen else ""):
            raise BadSpec(f"{path} {problem}", field=f"{field}.path")
        seen.add(path)


def why_not_free(path: str) -> str:
    """Why no job may mount anything at a path; empty where it may."""
    if not path.startswith("/") or "\0" in path:
        return "is not absolute; begin it with /"
    if path != posixpath.normpath(path) or path.startswith("//"):
        return f"is not in its shortest form; write {posixpath.normpath(path).replace('//', '/')}"
    if path == "/" or path in _TEMPORARY or any(f"{path}/".startswith(f"{system}/") for system in _SYSTEM):
        return "belongs to the system; choose a path such as /data or /workspace"
    return ""


def mounts_have_a_source(document: JobDocument) -> None:
    training, sources = document.training_config, document.data_config.sources
    for field, mount in _mounts(document):
        if mount.type == DATA and mount.source >= len(sources):
            raise BadSpec(
                f"{mount.source} is no index in data_config.sources, which has {len(sources)}; the first one is 0",
                field=f"{field}.source",
            )
        if mount.type == MODEL and is_without_model(training.base_model, custom=True):
            raise BadSpec("the job has no model: set training_config.base_model.model_id", field=f"{field}.type")
        if mount.type == CODE and not (training.framework.custom_code_dir or training.framework.custom_script_path):
            raise BadSpec(
                "the job has no code directory: set training_config.framework.custom_code_dir", field=f"{field}.type"
            )


def mounts_have_only_fields_of_their_type(document: JobDocument) -> None:
    for field, mount in _mounts(document):
        for name, kind in _FIELDS.items():
            if getattr(mount, name) and mount.type != kind:
                raise BadSpec(f"is only for type {kind}; leave it out", field=f"{field}.{name}")
        if mount.size_mb and (mount.type not in (MEMORY, EMPTY, CLAIM) or mount.read_only):
            raise BadSpec(
                f"is only for types {MEMORY} and {EMPTY}, and for type {CLAIM} without read_only; leave it out",
                field=f"{field}.size_mb",
            )
        part = mount.sub_path
        if part and mount.type in (EMPTY, MEMORY):
            raise BadSpec(f"an {mount.type} directory has no parts; leave it out", field=f"{field}.sub_path")
        if part and (part.startswith("/") or "\0" in part or ".." in part.split("/")):
            raise BadSpec("must be relative, without ..", field=f"{field}.sub_path")


def files_are_few_and_differ(document: JobDocument) -> None:
    for field, mount in _mounts(document):
        if mount.type != FILES:
            continue
        if not mount.files:
            raise BadSpec("a mount of type files has at least one", field=f"{field}.files")
        if mount.sub_path and mount.sub_path not in {file.name for file in mount.files}:
            raise BadSpec(f"none of files is named {mount.sub_path}; name one of them", field=f"{field}.sub_path")
        seen: set[str] = set()
        for number, file in enumerate(mount.files):
            if file.name in seen:
                raise BadSpec(f"two files are named {file.name}; leave one out", field=f"{field}.files.{number}.name")
            seen.add(file.name)
    mounts = document.resource_config.mounts
    if (size := sum(len(file.content.encode()) for mount in mounts for file in mount.files)) > _MOST_BYTES:
        raise BadSpec(
            f"the files of all mounts have {size} bytes, and at most {_MOST_BYTES} are kept with a job; put larger "
            "ones into a data source",
            field="resource_config.mounts",
        )


def claims_are_named_and_whole(document: JobDocument) -> None:
    """Mount points in a directory that other jobs write to could be exchanged while they are used."""
    claims = [mount for _, mount in _mounts(document) if mount.type == CLAIM]
    writable = [mount for mount in claims if not mount.read_only]
    for field, mount in _mounts(document):
        if mount.type == CLAIM and not mount.claim:
            raise BadSpec("a mount of type claim names one; set claim", field=f"{field}.claim")
        if mount.create and mount.sub_path:
            raise BadSpec("a new claim is empty and has no parts; leave sub_path out", field=f"{field}.sub_path")
        for around in writable:
            if mount.path.startswith(f"{around.path}/"):
                raise BadSpec(
                    f"{mount.path} lies in {around.path}, a claim that the job may write to, where nothing else is "
                    "mounted; choose a path outside of it, or set read_only for the claim",
                    field=f"{field}.path",
                )


def refuse_shared_claims(document: JobDocument, rules: ReadingRules) -> None:
    """Raise BadSpec for a claim of all projects to which the job wants to write, or that it wants to make."""
    for field, mount in _mounts(document):
        if mount.type != CLAIM or mount.claim not in rules.shared_claims:
            continue
        if mount.create:
            raise BadSpec(f"{mount.claim} is a claim of all projects; leave create out", field=f"{field}.create")
        if not mount.read_only and mount.claim not in rules.writable_claims:
            raise BadSpec(
                f"{mount.claim} is a claim of all projects, which jobs only read; set read_only, or have the "
                "administrator add it to TRAINYARD_FETCH_PVC_SHARED_WRITABLE",
                field=f"{field}.read_only",
            )


RULES: tuple[Callable[[JobDocument], None], ...] = (
    mounts_are_of_scripts,
    mount_paths_are_free,
    mounts_have_a_source,
    mounts_have_only_fields_of_their_type,
    files_are_few_and_differ,
    claims_are_named_and_whole,
)
