"""Schemas of Run:ai's pod settings: probes, affinity, tolerations, ports and security."""

import re
from typing import Any

from marshmallow import fields

from app.compat.runai.requests_base import IGNORED, MANY, RETURNED, document, items, name, port
from app.schemas.spec.resource_config import MAX_ID, NOT_ROOT
from app.schemas.strict_fields import LARGEST, Choice, Flag, Matching, Section, Text, Whole

_SECONDS = 2**31 - 1
_CAPABILITIES = (
    "AUDIT_CONTROL",
    "AUDIT_READ",
    "AUDIT_WRITE",
    "BLOCK_SUSPEND",
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "IPC_LOCK",
    "IPC_OWNER",
    "KILL",
    "LEASE",
    "LINUX_IMMUTABLE",
    "MAC_ADMIN",
    "MAC_OVERRIDE",
    "MKNOD",
    "NET_ADMIN",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_RAW",
    "SETGID",
    "SETFCAP",
    "SETPCAP",
    "SETUID",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_CHROOT",
    "SYS_MODULE",
    "SYS_NICE",
    "SYS_PACCT",
    "SYS_PTRACE",
    "SYS_RAWIO",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "SYSLOG",
    "WAKE_ALARM",
)
_GROUPS = re.compile(r"[0-9]{1,10}(?:,[0-9]{1,10}){0,31}")
_TOOL = {"toolType": Text(longest=128, **IGNORED), "toolName": Text(longest=128, **IGNORED)}


def _names(**kwargs: Any) -> fields.List[Any]:
    return fields.List(name(), validate=MANY, **kwargs)


_HttpGet = document(
    "ProbeHttpGet",
    {
        "path": Text(longest=1024, **IGNORED),
        "port": port(required=True, **IGNORED),
        "host": Text(longest=253, **IGNORED),
        "scheme": Choice(("HTTP", "HTTPS"), **IGNORED),
    },
)
_Handler = document("ProbeHandler", {"httpGet": Section(_HttpGet, required=True)})
_Readiness = document(
    "ReadinessProbe",
    {
        "initialDelaySeconds": Whole(0, _SECONDS, **IGNORED),
        "periodSeconds": Whole(1, _SECONDS, **IGNORED),
        "timeoutSeconds": Whole(1, _SECONDS, **IGNORED),
        "successThreshold": Whole(1, _SECONDS, **IGNORED),
        "failureThreshold": Whole(1, _SECONDS, **IGNORED),
        "handler": Section(_Handler, required=True),
    },
)
Probes = document("Probes", {"readiness": Section(_Readiness)})
PodAffinity = document(
    "PodAffinity",
    {"type": Choice(("Required", "Preferred"), required=True, **IGNORED), "key": name(required=True, **IGNORED)},
)
_Expression = document(
    "MatchExpression",
    {
        "key": name(required=True, **IGNORED),
        "operator": Choice(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"), required=True, **IGNORED),
        "values": _names(**IGNORED),
    },
)
_Term = document("NodeSelectorTerm", {"matchExpressions": fields.List(Section(_Expression), validate=MANY)})
NodeAffinityRequired = document(
    "NodeAffinityRequired", {"nodeSelectorTerms": fields.List(Section(_Term), validate=MANY)}
)
Security = document(
    "Security",
    {
        "uidGidSource": Choice(("fromTheImage", "fromIdpToken", "custom")),
        "capabilities": fields.List(Choice(_CAPABILITIES), validate=MANY, **IGNORED),
        "seccompProfileType": Choice(("RuntimeDefault", "Unconfined", "Localhost")),
        "runAsNonRoot": Flag(),
        "readOnlyRootFilesystem": Flag(),
        "runAsUid": Whole(1, MAX_ID, rule=NOT_ROOT),
        "runAsGid": Whole(0, MAX_ID),
        "supplementalGroups": Matching(_GROUPS, "must be numbers of groups with commas between them", **IGNORED),
        "allowPrivilegeEscalation": Flag(),
        "hostIpc": Flag(),
        "hostNetwork": Flag(),
    },
)


def tolerations() -> fields.List[Any]:
    described = {
        "name": name(**IGNORED),
        "operator": Choice(("Equal", "Exists"), **IGNORED),
        "key": Text(longest=317, **IGNORED),
        "value": Text(longest=253, **IGNORED),
        "effect": Choice(("NoSchedule", "NoExecute", "PreferNoSchedule", "Any"), **IGNORED),
        "seconds": Whole(1, LARGEST, **IGNORED),
    }
    return items("Toleration", described)


def ports() -> fields.List[Any]:
    described = {
        "container": port(required=True, **IGNORED),
        "serviceType": Choice(("LoadBalancer", "NodePort", "ClusterIP"), **IGNORED),
        "external": port(**IGNORED),
        "name": name(**IGNORED),
        **_TOOL,
    }
    return items("Port", described)


def exposed_urls() -> fields.List[Any]:
    described = {
        "container": port(required=True, **IGNORED),
        "url": Text(longest=2048, **IGNORED),
        "authorizationType": Choice(("authenticatedUsers", "authorizedUsers", "authorizedGroups"), **IGNORED),
        "authorizedUsers": _names(**IGNORED),
        "authorizedGroups": _names(**IGNORED),
        "name": name(**IGNORED),
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
    return items("ImagePullSecret", {"name": name(**IGNORED), "userCredential": Flag(**IGNORED)})
