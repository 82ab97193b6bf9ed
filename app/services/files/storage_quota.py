"""What each project stores, and the refusal of files beyond the storage quota of their project."""

from collections.abc import Collection

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.domain.errors import StorageQuotaExceeded
from app.domain.scheduling.fair_share import quota_of
from app.models import Artifact, Checkpoint, File, InteractiveSession, Job, Project, Upload, UploadPart
from app.services.access import projects

GB = 1e9


def stored_bytes(session: Session, names: Collection[str]) -> dict[str, int]:
    """Project → bytes of stored checkpoints, results, uploaded files, parts of uploads and recordings."""
    if not names:
        return {}
    saved = (
        select(Checkpoint.project, func.sum(Checkpoint.size_bytes).label("size"))
        .where(Checkpoint.project.in_(names), Checkpoint.deleted_at.is_(None))
        .group_by(Checkpoint.project)
    )
    results = (
        select(Job.project, func.sum(Artifact.size_bytes).label("size"))
        .join(Job, Job.id == Artifact.job_id)
        .where(Job.project.in_(names))
        .group_by(Job.project)
    )
    files = (
        select(File.project, func.sum(File.size_bytes).label("size"))
        .where(File.project.in_(names))
        .group_by(File.project)
    )
    parts = (
        select(Upload.project, func.sum(UploadPart.size_bytes).label("size"))
        .join(Upload, Upload.id == UploadPart.upload_id)
        .where(Upload.project.in_(names))
        .group_by(Upload.project)
    )
    recordings = (
        select(Job.project, func.sum(InteractiveSession.recording_bytes).label("size"))
        .join(Job, Job.id == InteractiveSession.job_id)
        .where(Job.project.in_(names), InteractiveSession.recorded)
        .group_by(Job.project)
    )
    found = dict.fromkeys(names, 0)
    for query in (saved, results, files, parts, recordings):
        for row in session.execute(query):
            found[row.project] += int(row.size)
    return found


def free_bytes(session: Session, project: Project) -> int | None:
    """How much more the project may store; None: there is no limit."""
    limit = quota_of(project.quota).storage_gb
    if limit is None:
        return None
    return int(limit * GB) - stored_bytes(session, [project.name])[project.name]


def hold(session: Session, name: str) -> None:
    """Lock the project against deletion, and where it has a storage quota, against others that store more.

    Required before an upload is locked whose transaction stores more: projects are locked first.
    """
    projects.hold(session, name)
    project = session.get(Project, name)
    if project is not None and quota_of(project.quota).storage_gb is not None:
        session.refresh(project, with_for_update={"key_share": True})


def refuse_more(session: Session, name: str, size_bytes: int) -> None:
    """Raises StorageQuotaExceeded unless the project may store as much more; the caller adds it in this transaction."""
    project = session.get_one(Project, name)
    if quota_of(project.quota).storage_gb is None:
        return
    # Locked until the new row is there: of two that are added at once, the second counts the first.
    session.refresh(project, with_for_update={"key_share": True})
    free = free_bytes(session, project)
    if free is not None and size_bytes > free:
        raise exceeded(name, size_bytes, free)


def exceeded(name: str, size_bytes: int, free: int) -> StorageQuotaExceeded:
    return StorageQuotaExceeded(
        f"the project {name} may store {max(0, free)} more bytes (storage_gb of its quota), and this has {size_bytes} "
        "or more; delete jobs with their artifacts, or files"
    )
