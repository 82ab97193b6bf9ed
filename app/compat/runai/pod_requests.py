"""What the pod of a Run:ai training is to be, by the names on the wire: probes, neighbours, ports and rights."""

import re
from typing import Any

from marshmallow import fields

from app.compat.runai.requests_base import KEPT, MANY, RETURNED, document, items, name, port
from app.schemas.strict_fields import LARGEST, Choice, Flag, Matching, Section, Text, Whole

_SECONDS = 2**31 - 1
_LARGEST_ID = 2**32 - 2  # of a user or group in Linux
_CAPABILITIES = (
    "AUDIT_CONTROL", "AUDIT_READ", "AUDIT_WRITE", "BLOCK_SUSPEND", "CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER",
    "FSETID", "IPC_LOCK", "IPC_OWNER", "KILL", "LEASE", "LINUX_IMMUTABLE", "MAC_ADMIN", "MAC_OVERRIDE", "MKNOD",
    "NET_ADMIN", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_RAW", "SETGID", "SETFCAP", "SETPCAP", "SETUID", "SYS_ADMIN",
    "SYS_BOOT", "SYS_CHROOT", "SYS_MODULE", "SYS_NICE", "SYS_PACCT", "SYS_PTRACE", "SYS_RAWIO", "SYS_RESOURCE",
    "SYS_TIME", "SYS_TTY_CONFIG", "SYSLOG", "WAKE_ALARM",
)  # fmt: skip
_GROUPS = re.compile(r"[0-9]{1,10}(?:,[0-9]{1,10}){0,31}")
_TOOL = {"toolType": Text(longest=128, **KEPT), "toolName": Text(longest=128, **KEPT)}


def _names(**kwargs: Any) -> fields.List[Any]:
    return fields.List(name(), validate=MANY, **kwargs)


_HttpGet = document(
    "ProbeHttpGet",
    {
        "path": Text(longest=1024, **KEPT),
        "port": port(required=True, **KEPT),
        "host": Text(longest=253, **KEPT),
        "scheme": Choice(("HTTP", "HTTPS"), **KEPT),
    },
)
_Handler = document("ProbeHandler", {"httpGet": Section(_HttpGet, required=True)})
_Readiness = document(
    "ReadinessProbe",
    {
        "initialDelaySeconds": Whole(0, _SECONDS, **KEPT),
        "periodSeconds": Whole(1, _SECONDS, **KEPT),
        "timeoutSeconds": Whole(1, _SECONDS, **KEPT),
        "successThreshold": Whole(1, _SECONDS, **KEPT),
        "failureThreshold": Whole(1, _SECONDS, **KEPT),
        "handler": Section(_Handler, required=True),
    },
)
Probes = document("Probes", {"readiness": Section(_Readiness)})
PodAffinity = document(
    "PodAffinity",
    {"type": Choice(("Required", "Preferred"), required=True, **KEPT), "key": name(required=True, **KEPT)},
)
_Expression = document(
    "MatchExpression",
    {
        "key": name(required=True, **KEPT),
        "operator": Choice(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"), required=True, **KEPT),
        "values": _names(**KEPT),
    },
)
_Term = document("NodeSelectorTerm", {"matchExpressions": fields.List(Section(_Expression), validate=MANY)})
NodeAffinityRequired = document(
    "NodeAffinityRequired", {"nodeSelectorTerms": fields.List(Section(_Term), validate=MANY)}
)
Security = document(
    "Security",
    {
        "uidGidSource": Choice(("fromTheImage", "fromIdpToken", "custom"), **KEPT),
        "capabilities": fields.List(Choice(_CAPABILITIES), validate=MANY, **KEPT),
        "seccompProfileType": Choice(("RuntimeDefault", "Unconfined", "Localhost"), **KEPT),
        "runAsNonRoot": Flag(**KEPT),
        "readOnlyRootFilesystem": Flag(**KEPT),
        "runAsUid": Whole(0, _LARGEST_ID, **KEPT),
        "runAsGid": Whole(0, _LARGEST_ID, **KEPT),
        "supplementalGroups": Matching(_GROUPS, "must be numbers of groups with commas between them", **KEPT),
        "allowPrivilegeEscalation": Flag(**KEPT),
        "hostIpc": Flag(**KEPT),
        "hostNetwork": Flag(**KEPT),
    },
)


def tolerations() -> fields.List[Any]:
    described = {
        "name": name(**KEPT),
        "operator": Choice(("Equal", "Exists"), **KEPT),
        "key": Text(longest=317, **KEPT),
        "value": Text(longest=253, **KEPT),
        "effect": Choice(("NoSchedule", "NoExecute", "PreferNoSchedule", "Any"), **KEPT),
        "seconds": Whole(1, LARGEST, **KEPT),
    }
    return items("Toleration", described)


def ports() -> fields.List[Any]:
    described = {
        "container": port(required=True, **KEPT),
        "serviceType": Choice(("LoadBalancer", "NodePort", "ClusterIP"), **KEPT),
        "external": port(**KEPT),
        "name": name(**KEPT),
        **_TOOL,
    }
    return items("Port", described)


def exposed_urls() -> fields.List[Any]:
    described = {
        "container": port(required=True, **KEPT),
        "url": Text(longest=2048, **KEPT),
        "authorizationType": Choice(("authenticatedUsers", "authorizedUsers", "authorizedGroups"), **KEPT),
        "authorizedUsers": _names(**KEPT),
        "authorizedGroups": _names(**KEPT),
        "name": name(**KEPT),
        **_TOOL,
    }
    return items("ExposedUrl", described)


def related_urls() -> fields.List[Any]:
    described = {
        "url": Text(longest=2048, **RETURNED),
        "type": Text(longest=128, **RETURNED),
        "name": Text(longest=253, **RETURNED),
    }
    return items("RelatedUrl", described)


def image_pull_secrets() -> fields.List[Any]:
    return items("ImagePullSecret", {"name": name(**KEPT), "userCredential": Flag(**KEPT)})
