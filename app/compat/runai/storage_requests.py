"""What the storage of a Run:ai training may have in it, by the names on the wire."""

from typing import Any

from marshmallow import fields, validate

from app.compat.runai.requests_base import KEPT, Described, document
from app.schemas.strict_fields import Choice, Flag, FreeObject, Section, Text, says

_ABSOLUTE = "Where the training looks for it"


def _path(**kwargs: Any) -> Text:
    return Text(longest=1024, **kwargs)


def _named(name: str, described: Described) -> fields.List[Any]:
    common = {"name": Text(longest=253), "exclude": Flag(**says("true: as if it were not there"))}
    return fields.List(Section(document(name, {**common, **described})), validate=validate.Length(max=100))


Storage = document(
    "Storage",
    {
        "dataVolume": fields.List(FreeObject(), validate=validate.Length(max=100), **KEPT),
        "pvc": _named(
            "Pvc",
            {
                "existingPvc": Flag(**says("true: pvc://CLAIM; else it would be empty, and is kept and told")),
                "claimName": Text(longest=63),
                "path": _path(**says(_ABSOLUTE)),
                "readOnly": Flag(**says("Jobs read it in any case")),
                "ephemeral": Flag(**KEPT),
                "claimInfo": FreeObject(**KEPT),
                "dataSharing": Flag(**KEPT),
            },
        ),
        "git": _named(
            "Git",
            {
                "repository": Text(longest=1024, **says("git/HOST/OWNER/NAME below a storage root")),
                "branch": Text(longest=255, **KEPT),
                "revision": Text(longest=255, **KEPT),
                "path": _path(**says(_ABSOLUTE)),
                "passwordSecret": Text(longest=253, **KEPT),
                "secretKeyOfUser": Text(longest=253, **KEPT),
                "secretKeyOfPassword": Text(longest=253, **KEPT),
            },
        ),
        "hostPath": _named(
            "HostPath",
            {
                "path": _path(**says("A directory of the node that jobs may read")),
                "readOnly": Flag(**says("Jobs read it in any case")),
                "mountPath": _path(**says(_ABSOLUTE)),
                "mountPropagation": Choice(("None", "HostToContainer"), **KEPT),
            },
        ),
        "nfs": _named(
            "Nfs",
            {
                "server": Text(longest=253),
                "path": _path(**says("nfs/SERVER/PATH below a storage root")),
                "readOnly": Flag(**says("Jobs read it in any case")),
                "mountPath": _path(**says(_ABSOLUTE)),
            },
        ),
        "s3": _named(
            "S3",
            {
                "bucket": Text(longest=255, **says("s3/BUCKET below a storage root")),
                "path": _path(**says(_ABSOLUTE)),
                "url": Text(longest=1024, **KEPT),
                "accessKeySecret": Text(longest=253, **KEPT),
                "secretKeyOfAccessKeyId": Text(longest=253, **KEPT),
                "secretKeyOfSecretKey": Text(longest=253, **KEPT),
            },
        ),
        "configMapVolume": fields.List(FreeObject(), validate=validate.Length(max=100), **KEPT),
        "secretVolume": fields.List(FreeObject(), validate=validate.Length(max=100), **KEPT),
        "emptyDirVolume": fields.List(FreeObject(), validate=validate.Length(max=100), **KEPT),
    },
)
