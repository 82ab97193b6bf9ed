"""Files that are uploaded in parts: parts in any order, put together in the order that completes the upload."""

import hashlib
import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import func, select, update
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from app.domain.errors import IllegalTransition, InvalidRequest, NotFound
from app.domain.files.content import MD5
from app.domain.ids import PART_ID, UPLOAD_ID, new_id
from app.models import File, Upload, UploadPart
from app.models.base import utc_now
from app.security.permissions import Caller
from app.services.access import projects
from app.services.files import creation, expiry, storage_quota
from app.services.files.creation import NewFile
from app.services.files.incoming import Incoming, StoredContent, UploadTarget
from app.services.lifecycle import audit
from app.services.requests.control_plane import ControlPlane
from app.services.requests.idempotency import OnWritten, not_stored
from app.storage.object_keys import upload_part_key

log = logging.getLogger(__name__)

COPIED_AT_ONCE = 1 << 20
# After this the request that puts the parts together counts as lost. Two at once are harmless: the first to end counts.
COMPLETES_WITHIN = timedelta(minutes=15)
MOST_MIME_CHARACTERS = 255
# A client that sends a part again after a failure leaves the first one.
MOST_TIMES_ITS_SIZE = 2
_MIME_TYPE = re.compile(r"[\x20-\x7e]{1,255}")


@dataclass(frozen=True, kw_only=True)
class NewUpload:
    file: NewFile
    mime_type: str
    size_bytes: int  # of the complete file


@dataclass(frozen=True, kw_only=True)
class UploadDetails:
    upload: Upload
    file: File | None = None  # of a completed upload

    @property
    def status(self) -> str:
        """As of now: an upload expires at its time, even before its row says so."""
        is_late = self.upload.status == "pending" and self.upload.expires_at <= utc_now()
        return "expired" if is_late else self.upload.status


def create(
    plane: ControlPlane, caller: Caller, new: NewUpload, *, project: str, on_written: OnWritten = not_stored
) -> None:
    """Begin an upload; ``on_written`` is given its UploadDetails.

    Raises InvalidRequest for values that no file may have, StorageQuotaExceeded when it can't fit.
    """
    creation.check(new.file)
    _check(new, plane.files.upload_max_bytes)
    caller.require_project(project[:63])
    with plane.db.write() as session:
        projects.require(session, project)
        projects.hold(session, project)
        storage_quota.refuse_more(session, project, new.size_bytes)
        now = utc_now()
        upload = Upload(
            id=new_id("upload"),
            project=project,
            created_by=caller.actor,
            filename=new.file.filename,
            purpose=new.file.purpose,
            mime_type=new.mime_type,
            size_bytes=new.size_bytes,
            status="pending",
            file_expires_seconds=new.file.expires_seconds,
            created_at=now,
            expires_at=now + timedelta(seconds=plane.files.upload_seconds),
        )
        session.add(upload)
        session.flush()
        _record(session, caller, upload, "upload.create")
        on_written(session, UploadDetails(upload=upload))


def find(session: Session, caller: Caller, upload_id: str) -> UploadDetails:
    """Raises the same NotFound for an upload that is not there and one that is not visible to the caller."""
    missing = f"no upload {upload_id[:64]}"
    upload = session.get(Upload, upload_id) if UPLOAD_ID.fullmatch(upload_id) else None
    if upload is None:
        raise NotFound(missing)
    caller.require_sight(upload.project, missing)
    return UploadDetails(upload=upload, file=session.get(File, upload.file_id) if upload.file_id else None)


def receive_part(plane: ControlPlane, caller: Caller, upload_id: str) -> Incoming:
    """Receive the content of a part. Raises NotFound, IllegalTransition unless the upload is pending."""
    with plane.db.read() as session:
        upload = _pending(find(session, caller, upload_id))
        free = storage_quota.free_bytes(session, projects.require(session, upload.project))
    part_id = new_id("part")
    place = UploadTarget(
        id=part_id,
        key=upload_part_key(upload.project, upload.id, part_id),
        project=upload.project,
        max_bytes=plane.files.part_max_bytes,
        free_bytes=free,
        has_row=lambda session, row_id: session.get(UploadPart, row_id) is not None,
    )
    return Incoming(plane, place)


def add_part(
    plane: ControlPlane, caller: Caller, upload_id: str, content: StoredContent, *, on_written: OnWritten = not_stored
) -> None:
    """Add a received part, within the block of its `Incoming`; ``on_written`` is given the UploadPart."""
    with plane.db.write() as session:
        upload = _locked(session, caller, upload_id)
        if not content.size_bytes:
            raise InvalidRequest("a part has at least one byte", field="data")
        if content.size_bytes > upload.size_bytes:
            raise InvalidRequest(
                f"the part has {content.size_bytes} bytes, and the whole upload was announced with {upload.size_bytes}",
                field="data",
            )
        there = session.scalar(select(func.sum(UploadPart.size_bytes)).where(UploadPart.upload_id == upload_id)) or 0
        if there + content.size_bytes > MOST_TIMES_ITS_SIZE * upload.size_bytes:
            raise InvalidRequest(
                f"the upload is to have {upload.size_bytes} bytes, and its parts have more than twice as many; "
                "cancel it and begin another",
                field="data",
            )
        storage_quota.refuse_more(session, upload.project, content.size_bytes)
        part = UploadPart(id=content.file_id, upload_id=upload_id, size_bytes=content.size_bytes, sha256=content.sha256)
        session.add(part)
        session.flush()
        on_written(session, part)


def complete(
    plane: ControlPlane,
    caller: Caller,
    upload_id: str,
    part_ids: Sequence[str],
    *,
    md5: str | None = None,
    on_written: OnWritten = not_stored,
) -> None:
    """Put the parts together in this order; ``on_written`` is given the UploadDetails with the new file.

    Raises InvalidRequest for parts that are unknown, named twice, or not of the announced size together, and for an MD5
    that is not that of the content; the upload stays pending then. Raises IllegalTransition while another request
    completes it.
    """
    if md5 is not None and not MD5.fullmatch(md5):
        raise InvalidRequest("expected 32 hexadecimal digits", field="md5")
    with _claimed(plane, caller, upload_id, part_ids) as upload:
        # Its bytes are counted as those of its parts until it replaces them.
        place = creation.place_of(new_id("file"), upload.project, max_bytes=upload.size_bytes, free_bytes=None)
        with Incoming(plane, place) as incoming:
            found = _copy(plane, upload, part_ids, incoming)
            if md5 is not None and found != md5.lower():
                raise InvalidRequest(
                    f"the content has the MD5 {found}, not {md5.lower()}; send the parts again", field="md5"
                )
            content = incoming.finish()
            with plane.db.write() as session:
                on_written(session, _completed(session, caller, upload_id, content))
    expiry.drop_parts(plane.storage, upload.project, upload_id)


def cancel(plane: ControlPlane, caller: Caller, upload_id: str, *, on_written: OnWritten = not_stored) -> None:
    """Raises IllegalTransition unless the upload is pending; ``on_written`` is given its UploadDetails."""
    with plane.db.write() as session:
        upload = _locked(session, caller, upload_id)
        expiry.end(session, upload, "cancelled")
        _record(session, caller, upload, "upload.cancel")
        session.flush()
        on_written(session, UploadDetails(upload=upload))
    expiry.drop_parts(plane.storage, upload.project, upload_id)


def _check(new: NewUpload, most: int) -> None:
    if not _MIME_TYPE.fullmatch(new.mime_type):
        raise InvalidRequest(
            f"expected a media type of 1 to {MOST_MIME_CHARACTERS} characters, such as application/jsonl",
            field="mime_type",
        )
    if new.size_bytes < 1:
        raise InvalidRequest("expected a number from 1", field="size_bytes")
    if new.size_bytes > most:
        raise InvalidRequest(f"an upload may have {most} bytes at most, not {new.size_bytes}", field="size_bytes")


def _pending(details: UploadDetails) -> Upload:
    if details.status != "pending":
        raise IllegalTransition(f"the upload {details.upload.id} is {details.status}; begin another")
    return details.upload


def _locked(session: Session, caller: Caller, upload_id: str) -> Upload:
    """The pending upload, locked until the transaction ends."""
    found = find(session, caller, upload_id)
    storage_quota.hold(session, found.upload.project)
    session.refresh(found.upload, with_for_update=True)
    return _pending(found)


@contextmanager
def _claimed(plane: ControlPlane, caller: Caller, upload_id: str, part_ids: Sequence[str]) -> Iterator[Upload]:
    """The upload, which no other request completes meanwhile. Raises as ``complete`` says."""
    with plane.db.write() as session:
        upload = _locked(session, caller, upload_id)
        _check_parts(session, upload, part_ids)
        now = utc_now()
        if upload.completing_since is not None and upload.completing_since > now - COMPLETES_WITHIN:
            raise IllegalTransition(
                f"the upload {upload_id} is being completed by another request; send this one again later"
            )
        upload.completing_since = now
        session.flush()
    try:
        yield upload
    except BaseException:
        _release(plane, upload)
        raise


def _release(plane: ControlPlane, upload: Upload) -> None:
    mine = Upload.id == upload.id, Upload.completing_since == upload.completing_since
    try:
        with plane.db.write() as session:
            session.execute(update(Upload).where(*mine).values(completing_since=None))
    except SQLAlchemyError:
        log.warning("%s can't be completed for a while", upload.id, exc_info=True)


def _check_parts(session: Session, upload: Upload, part_ids: Sequence[str]) -> None:
    known = select(UploadPart.id, UploadPart.size_bytes).where(UploadPart.upload_id == upload.id)
    sizes = {row.id: row.size_bytes for row in session.execute(known)}
    for index, part_id in enumerate(part_ids):
        field = f"part_ids.{index}"
        if not PART_ID.fullmatch(part_id) or part_id not in sizes:
            raise InvalidRequest(f"the upload has no part {part_id[:64]}", field=field)
        if part_id in part_ids[:index]:
            raise InvalidRequest(f"{part_id} is named twice", field=field)
    total = sum(sizes[part_id] for part_id in part_ids)
    if total != upload.size_bytes:
        raise InvalidRequest(
            f"these parts have {total} bytes, and the upload was announced with {upload.size_bytes}", field="part_ids"
        )


def _copy(plane: ControlPlane, upload: Upload, part_ids: Sequence[str], incoming: Incoming) -> str:
    """Copy the parts; returns the MD5 of the whole, which the client compares, not we: it protects against nothing."""
    md5 = hashlib.md5(usedforsecurity=False)
    for part_id in part_ids:
        try:
            with plane.storage.open(upload_part_key(upload.project, upload.id, part_id)) as part:
                while chunk := part.read(COPIED_AT_ONCE):
                    md5.update(chunk)
                    incoming.write(chunk)
        except NotFound as error:
            raise IllegalTransition(f"the upload {upload.id} was ended while it was completed") from error
    return md5.hexdigest()


def _completed(session: Session, caller: Caller, upload_id: str, content: StoredContent) -> UploadDetails:
    found = find(session, caller, upload_id)
    storage_quota.hold(session, found.upload.project)
    upload = found.upload
    session.refresh(upload, with_for_update=True)
    if upload.status != "pending":
        raise IllegalTransition(f"the upload {upload_id} is {upload.status}; begin another")
    if content.size_bytes != upload.size_bytes:
        raise IllegalTransition(f"the parts of {upload_id} were changed while it was completed")
    expiry.end(session, upload, "completed")
    new = NewFile(filename=upload.filename, purpose=upload.purpose, expires_seconds=upload.file_expires_seconds)
    file = creation.added(session, caller, new, content, project=upload.project)
    upload.file_id = file.id
    session.flush()
    return UploadDetails(upload=upload, file=file)


def _record(session: Session, caller: Caller, upload: Upload, action: str) -> None:
    audit.record(
        session,
        actor=caller.actor,
        action=action,
        project=upload.project,
        target=upload.id,
        data={"filename": upload.filename, "purpose": upload.purpose, "size_bytes": upload.size_bytes},
    )
