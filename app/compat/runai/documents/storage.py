"""Schemas of the storage of Run:ai's trainings."""

import re
from typing import Any

from marshmallow import fields

from app.compat.runai.documents.base import IGNORED, MANY, RETURNED, Described, document, items, name, path, quantity
from app.schemas.strict_fields import Choice, Flag, Matching, SectionField, Text, says

_ABSOLUTE = "Mount path in the training"
_OPENS = says("A secret of the project that opens the repository")
_USER_KEY = says("The key of the user in the secret; default username")
_PASSWORD_KEY = says("The key of the password in the secret; default password")
_ONLY_READ = says("Volumes are read-only; false has a warning")


def _volumes(kind: str, described: Described) -> fields.List[Any]:
    return items(kind, {"name": name(**RETURNED), **described})


def _mode() -> Matching:
    return Matching(
        re.compile(r"0[0-7]{3}"),
        "must be a mode of files such as 0644",
        **says("Permissions of the files; the owner, who is the job, must be able to read. Default 0400"),
    )


_AccessModes = document(
    "PvcAccessModes",
    {
        "readWriteOnce": Flag(**says("The new claim is writable, on any number of nodes")),
        "readOnlyMany": Flag(**says("The new claim is read-only, unless it is writable, too")),
        "readWriteMany": Flag(**says("The new claim is writable")),
    },
)
_AddedValue = document("PvcAddedValue", {"key": Text(longest=63, shortest=1, required=True), "value": Text(**IGNORED)})
_ClaimInfo = document(
    "ClaimInfo",
    {
        "size": quantity(**says("What a new claim may hold while the training writes to it")),
        "storageClass": name(**IGNORED),
        "accessModes": SectionField(_AccessModes),
        "volumeMode": Choice(("Filesystem", "Block"), **says("Filesystem; Block is ignored with a warning")),
        "addedAttrValues": fields.List(SectionField(_AddedValue), validate=MANY),
    },
)
_GitSecret = document(
    "GitSecret",
    {
        "name": name(**_OPENS),
        "authenticationMethod": Choice(("password", "ssh-key"), **says("password; ssh-key is refused")),
        "secretKeyOfUser": name(**_USER_KEY),
        "secretKeyOfPassword": name(**_PASSWORD_KEY),
    },
)
Storage = document(
    "Storage",
    {
        "dataVolume": items("DataVolume", {"id": name(**IGNORED), "mountPath": path(**IGNORED)}),
        "pvc": _volumes(
            "Pvc",
            {
                "existingPvc": Flag(**says("true: pvc://CLAIM; else a claim is made at the start")),
                "claimName": Text(
                    longest=63,
                    shortest=1,
                    **says("The claim; a new one without a name is called WORKLOAD-VOLUME-DIGEST"),
                ),
                "path": path(**says(_ABSOLUTE)),
                "readOnly": Flag(**says("false: the training writes to the claim; default true for existing ones")),
                "ephemeral": Flag(**says("true: a new claim is deleted when the training is stopped or ends")),
                "claimInfo": SectionField(_ClaimInfo),
                "dataSharing": Flag(**IGNORED),
            },
        ),
        "git": _volumes(
            "Git",
            {
                "repository": path(
                    **says("https://…, cloned with a commit in revision; else git/HOST/OWNER/NAME below a storage root")
                ),
                "branch": Text(longest=255, shortest=1, **says("Revision decides")),
                "revision": Text(longest=255, shortest=1, **says("The commit, by its 40 hexadecimal digits")),
                "path": path(**says(_ABSOLUTE)),
                "passwordSecret": name(**_OPENS),
                "secretKeyOfUser": name(**_USER_KEY),
                "secretKeyOfPassword": name(**_PASSWORD_KEY),
                "secretRef": SectionField(_GitSecret),
            },
        ),
        "hostPath": _volumes(
            "HostPath",
            {
                "path": path(**says("A directory of the node that jobs may read")),
                "readOnly": Flag(**_ONLY_READ),
                "mountPath": path(**says(_ABSOLUTE)),
                "mountPropagation": Choice(("None", "HostToContainer"), **IGNORED),
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
                "bucket": Text(
                    longest=255,
                    shortest=1,
                    **says("The bucket; without url and accessKeySecret s3/BUCKET below a storage root"),
                ),
                "path": path(**says(_ABSOLUTE)),
                "url": path(**says("The service, https://HOST; default that of the operator")),
                "accessKeySecret": name(**says("A secret of the project that opens the bucket")),
                "secretKeyOfAccessKeyId": name(**says("The key of the ID in it; default AccessKeyId")),
                "secretKeyOfSecretKey": name(**says("The key of the secret access key in it; default SecretKey")),
            },
        ),
        "configMapVolume": _volumes(
            "ConfigMapVolume",
            {
                "configMap": name(**says("A config map that the operator provides as secrets are")),
                "mountPath": path(**says(_ABSOLUTE)),
                "subPath": path(**says("One key of it: mountPath is that file")),
                "defaultMode": _mode(),
            },
        ),
        "secretVolume": _volumes(
            "SecretVolume",
            {
                "secret": name(**says("A secret of the project")),
                "mountPath": path(**says(_ABSOLUTE)),
                "defaultMode": _mode(),
            },
        ),
        "emptyDirVolume": _volumes(
            "EmptyDirVolume",
            {
                "path": path(**says(_ABSOLUTE)),
                "medium": Text(longest=63, shortest=1, **says("Memory: a directory in memory")),
                "sizeLimit": quantity(**says("The size of a directory in memory; what one on disk may hold")),
            },
        ),
    },
)
