"""What the storage of a Run:ai training may have in it, by the names on the wire."""

import re
from typing import Any

from marshmallow import fields

from app.compat.runai.requests_base import KEPT, MANY, RETURNED, Described, document, items, name, path, quantity
from app.schemas.strict_fields import Choice, Flag, Matching, Section, Text, says

_ABSOLUTE = "Where the training looks for it"
_ONLY_READ = says("Jobs read it in any case; false is named in a warning")


def _volumes(kind: str, described: Described) -> fields.List[Any]:
    return items(kind, {"name": name(**RETURNED), **described})


def _mode() -> Matching:
    return Matching(re.compile(r"0[0-7]{3}"), "must be a mode of files such as 0644", **KEPT)


_AccessModes = document(
    "PvcAccessModes",
    {"readWriteOnce": Flag(**KEPT), "readOnlyMany": Flag(**KEPT), "readWriteMany": Flag(**KEPT)},
)
_AddedValue = document("PvcAddedValue", {"key": Text(longest=63, shortest=1, required=True), "value": Text(**KEPT)})
_ClaimInfo = document(
    "ClaimInfo",
    {
        "size": quantity(**KEPT),
        "storageClass": name(**KEPT),
        "accessModes": Section(_AccessModes),
        "volumeMode": Choice(("Filesystem", "Block"), **KEPT),
        "addedAttrValues": fields.List(Section(_AddedValue), validate=MANY),
    },
)
_GitSecret = document(
    "GitSecret",
    {
        "name": name(**KEPT),
        "authenticationMethod": Choice(("password", "ssh-key"), **KEPT),
        "secretKeyOfUser": name(**KEPT),
        "secretKeyOfPassword": name(**KEPT),
    },
)
Storage = document(
    "Storage",
    {
        "dataVolume": items("DataVolume", {"id": name(**KEPT), "mountPath": path(**KEPT)}),
        "pvc": _volumes(
            "Pvc",
            {
                "existingPvc": Flag(**says("true: pvc://CLAIM; else it would be empty, and a warning names it")),
                "claimName": Text(longest=63, shortest=1, **says("The claim")),
                "path": path(**says(_ABSOLUTE)),
                "readOnly": Flag(**_ONLY_READ),
                "ephemeral": Flag(**KEPT),
                "claimInfo": Section(_ClaimInfo),
                "dataSharing": Flag(**KEPT),
            },
        ),
        "git": _volumes(
            "Git",
            {
                "repository": path(**says("git/HOST/OWNER/NAME below a storage root")),
                "branch": Text(longest=255, shortest=1, **KEPT),
                "revision": Text(longest=255, shortest=1, **KEPT),
                "path": path(**says(_ABSOLUTE)),
                "passwordSecret": name(**KEPT),
                "secretKeyOfUser": name(**KEPT),
                "secretKeyOfPassword": name(**KEPT),
                "secretRef": Section(_GitSecret),
            },
        ),
        "hostPath": _volumes(
            "HostPath",
            {
                "path": path(**says("A directory of the node that jobs may read")),
                "readOnly": Flag(**_ONLY_READ),
                "mountPath": path(**says(_ABSOLUTE)),
                "mountPropagation": Choice(("None", "HostToContainer"), **KEPT),
            },
        ),
        "nfs": _volumes(
            "Nfs",
            {
                "server": name(**says("nfs/SERVER/PATH below a storage root")),
                "path": path(**says("nfs/SERVER/PATH below a storage root")),
                "readOnly": Flag(**_ONLY_READ),
                "mountPath": path(**says(_ABSOLUTE)),
            },
        ),
        "s3": _volumes(
            "S3",
            {
                "bucket": Text(longest=255, shortest=1, **says("s3/BUCKET below a storage root")),
                "path": path(**says(_ABSOLUTE)),
                "url": path(**KEPT),
                "accessKeySecret": name(**KEPT),
                "secretKeyOfAccessKeyId": name(**KEPT),
                "secretKeyOfSecretKey": name(**KEPT),
            },
        ),
        "configMapVolume": _volumes(
            "ConfigMapVolume",
            {"configMap": name(**KEPT), "mountPath": path(**KEPT), "subPath": path(**KEPT), "defaultMode": _mode()},
        ),
        "secretVolume": _volumes(
            "SecretVolume", {"secret": name(**KEPT), "mountPath": path(**KEPT), "defaultMode": _mode()}
        ),
        "emptyDirVolume": _volumes(
            "EmptyDirVolume",
            {"path": path(**KEPT), "medium": Text(longest=63, shortest=1, **KEPT), "sizeLimit": quantity(**KEPT)},
        ),
    },
)
