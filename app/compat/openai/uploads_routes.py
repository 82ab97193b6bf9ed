"""Routes of files that are uploaded in parts."""

from typing import Any

from flask import Blueprint, request

from app.compat.openai import multipart
from app.compat.openai.bodies import NO_BODY, fields_named, json_body, seconds
from app.compat.openai.files_routes import file_object
from app.compat.openai.files_schemas import (
    AddPartSchema,
    CompleteUploadSchema,
    CreateUploadSchema,
    UploadPartSchema,
    UploadSchema,
)
from app.compat.openai.multipart import FormWithFile
from app.http.context import backend, caller, holder, plane
from app.http.envelope import Reply
from app.http.idempotency import ReplyRecorder
from app.http.operation import operation
from app.security.permissions import Permission
from app.services.files import uploads
from app.services.files.creation import NewFile
from app.services.files.incoming import Incoming
from app.services.files.uploads import NewUpload, UploadDetails
from app.services.rows import Session, UploadPart

blueprint = Blueprint("openai_uploads", __name__)
blueprint.teardown_request(multipart.close)


def _shown(_session: Session, details: UploadDetails) -> Reply:
    upload = details.upload
    found = {
        "id": upload.id,
        "object": "upload",
        "bytes": upload.size_bytes,
        "created_at": seconds(upload.created_at),
        "expires_at": seconds(upload.expires_at),
        "filename": upload.filename,
        "purpose": upload.purpose,
        "status": details.status,
        "file": file_object(details.file) if details.file is not None else None,
    }
    return Reply(found)


def _shown_part(_session: Session, part: UploadPart) -> Reply:
    created_at = seconds(part.created_at)
    return Reply({"id": part.id, "object": "upload.part", "created_at": created_at, "upload_id": part.upload_id})


@blueprint.post("/uploads")
@operation(
    "Begin an upload in parts", permission=Permission.MANAGE, answer=UploadSchema, **json_body(CreateUploadSchema)
)
def create_upload(body: dict[str, Any]) -> Reply:
    expires_seconds = body.get("expires_after", {}).get("seconds")
    file = NewFile(filename=body["filename"], purpose=body["purpose"], expires_seconds=expires_seconds)
    new = NewUpload(file=file, mime_type=body["mime_type"], size_bytes=body["bytes"])
    recorder = ReplyRecorder(_shown)
    with fields_named(size_bytes="bytes"):
        uploads.create(plane(), caller(), new, project=caller().home_project, on_written=recorder)
    return recorder.reply


def _most_bytes() -> int:
    return backend().settings.files.part_max_bytes


def _receive() -> Incoming:
    upload_id: str = (request.view_args or {})["upload_id"]
    return uploads.receive_part(plane(), caller(), upload_id)


@blueprint.post("/uploads/<upload_id>/parts")
@operation(
    "Add a part to an upload",
    permission=Permission.MANAGE,
    body=AddPartSchema,
    reader=FormWithFile(AddPartSchema, "data", receive=_receive, most_bytes=_most_bytes),
    takes=multipart.MEDIA_TYPE,
    answer=UploadPartSchema,
)
def add_part(upload_id: str, body: dict[str, Any]) -> Reply:
    del body  # its content is stored
    recorder = ReplyRecorder(_shown_part)
    uploads.add_part(plane(), caller(), upload_id, multipart.content().stored, on_written=recorder)
    return recorder.reply


@blueprint.post("/uploads/<upload_id>/complete")
@operation(
    "Put the parts of an upload together",
    permission=Permission.MANAGE,
    answer=UploadSchema,
    **json_body(CompleteUploadSchema),
)
def complete_upload(upload_id: str, body: dict[str, Any]) -> Reply:
    recorder = ReplyRecorder(_shown)
    with backend().bodies.held(holder()):  # it takes as long as a large body
        uploads.complete(plane(), caller(), upload_id, body["part_ids"], md5=body.get("md5"), on_written=recorder)
    return recorder.reply


@blueprint.post("/uploads/<upload_id>/cancel")
@operation("Cancel an upload", permission=Permission.MANAGE, answer=UploadSchema, **NO_BODY)
def cancel_upload(upload_id: str, body: dict[str, Any]) -> Reply:
    del body
    recorder = ReplyRecorder(_shown)
    uploads.cancel(plane(), caller(), upload_id, on_written=recorder)
    return recorder.reply
