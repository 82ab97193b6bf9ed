"""Routes of files."""

from typing import Any

from flask import Blueprint, Response

from app.compat.openai import multipart
from app.compat.openai.bodies import ASCENDING, fields_named, listed, seconds, seconds_or_none
from app.compat.openai.files_schemas import CreateFileSchema, DeletedSchema, FileQuerySchema, FileSchema, FilesSchema
from app.compat.openai.multipart import FormWithFile
from app.http.context import backend, caller, plane
from app.http.downloads import Content, download
from app.http.envelope import Reply
from app.http.idempotency import ReplyRecorder
from app.http.operation import operation
from app.security.permissions import Permission
from app.services.files import content, creation, deletion, listing
from app.services.files.creation import NewFile
from app.services.files.incoming import Incoming
from app.services.requests.pagination import PageRequest
from app.services.rows import File, Session

blueprint = Blueprint("openai_files", __name__)
blueprint.teardown_request(multipart.close)


def file_object(file: File) -> dict[str, Any]:
    return {
        "id": file.id,
        "object": "file",
        "bytes": file.size_bytes,
        "created_at": seconds(file.created_at),
        "expires_at": seconds_or_none(file.expires_at),
        "filename": file.filename,
        "purpose": file.purpose,
        "status": file.status,
        "status_details": file.status_details or None,
    }


def _most_bytes() -> int:
    return backend().settings.files.max_bytes


def _receive() -> Incoming:
    return creation.receive(plane(), caller(), caller().home_project, max_bytes=_most_bytes())


def _shown(_session: Session, file: File) -> Reply:
    return Reply(file_object(file))


@blueprint.post("/files")
@operation(
    "Upload a file",
    permission=Permission.MANAGE,
    body=CreateFileSchema,
    reader=FormWithFile(CreateFileSchema, "file", receive=_receive, most_bytes=_most_bytes),
    takes=multipart.MEDIA_TYPE,
    answer=FileSchema,
)
def create_file(body: dict[str, Any]) -> Reply:
    form, recorder = multipart.content(), ReplyRecorder(_shown)
    new = NewFile(filename=form.filename, purpose=body["purpose"], expires_seconds=body.get("seconds"))
    with fields_named(filename="file"):
        creation.create(plane(), caller(), new, form.stored, project=caller().home_project, on_written=recorder)
    return recorder.reply


@blueprint.get("/files")
@operation("List files", permission=Permission.VIEW, query=FileQuerySchema, answer=FilesSchema)
def list_files(query: dict[str, Any]) -> Reply:
    after = (query["after"],) if "after" in query else None
    order = "created_at" if query.get("order") == ASCENDING else "-created_at"
    filters: dict[str, Any] = {name: query[name] for name in ("purpose", "sha256") if name in query}
    with plane().db.read() as session:
        page = listing.page(session, caller(), filters, PageRequest(size=query["limit"], order=order, after=after))
        found = [file_object(file) for file in page.items]
    return Reply(listed(found, has_more=page.next_after is not None))


@blueprint.get("/files/<file_id>")
@operation("Get a file", permission=Permission.VIEW, answer=FileSchema)
def get_file(file_id: str) -> Reply:
    with plane().db.read() as session:
        return Reply(file_object(listing.find(session, caller(), file_id)))


@blueprint.delete("/files/<file_id>")
@operation("Delete a file", permission=Permission.MANAGE, answer=DeletedSchema)
def delete_file(file_id: str) -> Reply:
    deletion.delete(plane(), caller(), file_id)
    return Reply({"id": file_id, "object": "file", "deleted": True})


@blueprint.get("/files/<file_id>/content")
@operation("Download a file, or a range of it", permission=Permission.VIEW, media="bytes")
def get_content(file_id: str) -> Response:
    here = plane()
    with here.db.read() as session:
        file = listing.find(session, caller(), file_id)
    return download(
        Content(
            what="the file",
            size_bytes=file.size_bytes,
            sha256=file.sha256,
            opened=lambda start: content.opened(here, file, start),
        )
    )
