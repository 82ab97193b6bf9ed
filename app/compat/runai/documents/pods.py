"""Schemas of Run:ai's pod settings: probes, affinity, tolerations, ports and security."""

import re
from typing import Any

from marshmallow import fields, validate

from app.compat.runai.documents.base import IGNORED, MANY, RETURNED, document, items, name, port
from app.schemas.spec.interactive_config import MOST_AUTHORIZED
from app.schemas.spec.resource_config import MAX_ID, NOT_ROOT
from app.schemas.strict_fields import LARGEST, Choice, Flag, Matching, SectionField, Text, Whole, says

# Of probes.
_LONGEST_DELAY, _LONGEST_PERIOD, _LONGEST_TIMEOUT, _MOST_IN_A_ROW = 86_400, 3600, 300, 100
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
_TOOL = {"toolType": Text(longest=128, **RETURNED), "toolName": Text(longest=128, **RETURNED)}


def _names(**kwargs: Any) -> fields.List[Any]:
    return fields.List(name(), validate=MANY, **kwargs)


_HttpGet = document(
    "ProbeHttpGet",
    {
        "path": Text(longest=1000, **says("Asked by GET, 200 to 399 is a success; default /")),
        "port": port(required=True, **says("The port that is asked, in the sandbox of the first rank")),
        "host": Text(longest=253, **says("Only the workload itself: others have a warning")),
        "scheme": Choice(("HTTP", "HTTPS"), **says("HTTPS: a connection is enough, with a warning", default="HTTP")),
    },
)
_Handler = document("ProbeHandler", {"httpGet": SectionField(_HttpGet, required=True)})
_Readiness = document(
    "ReadinessProbe",
    {
        "initialDelaySeconds": Whole(0, _LONGEST_DELAY, **says("Before the first probe", default=0)),
        "periodSeconds": Whole(1, _LONGEST_PERIOD, **says("Between probes", default=10)),
        "timeoutSeconds": Whole(1, _LONGEST_TIMEOUT, **says("For an answer; at most periodSeconds", default=1)),
        "successThreshold": Whole(1, _MOST_IN_A_ROW, **says("Successes in a row until it is ready", default=1)),
        "failureThreshold": Whole(1, _MOST_IN_A_ROW, **says("Failures in a row until it is not", default=3)),
        "handler": SectionField(_Handler, required=True),
    },
)
Probes = document("Probes", {"readiness": SectionField(_Readiness)})
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
_Term = document("NodeSelectorTerm", {"matchExpressions": fields.List(SectionField(_Expression), validate=MANY)})
NodeAffinityRequired = document(
    "NodeAffinityRequired", {"nodeSelectorTerms": fields.List(SectionField(_Term), validate=MANY)}
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


def _admitted(**kwargs: Any) -> fields.List[Any]:
    return fields.List(name(), validate=validate.Length(max=MOST_AUTHORIZED), **kwargs)


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
        "container": port(required=True, **says("Reached by `trainyard port-forward`")),
        "serviceType": Choice(("LoadBalancer", "NodePort", "ClusterIP"), **IGNORED),
        "external": port(**IGNORED),
        "name": name(**says("The port's name, where an address can have it")),
        **_TOOL,
    }
    return items("Port", described)


def exposed_urls() -> fields.List[Any]:
    described = {
        "container": port(required=True, **says("The gateway serves it by HTTP, also by WebSockets")),
        "url": Text(longest=2048, **says("Read-only: the gateway's address of the port")),
        "authorizationType": Choice(
            ("authenticatedUsers", "authorizedUsers", "authorizedGroups"),
            **says("authenticatedUsers: all who may see the workload; others need their list"),
        ),
        "authorizedUsers": _admitted(**says("Names of people and of API keys who may open it")),
        "authorizedGroups": _admitted(**says("Groups of the identity provider whose members may open it")),
        "name": name(**says("The port's name in its address, where that can have it")),
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
    described = {
        "name": name(**says("A secret of the project with logins of registries")),
        "userCredential": Flag(**IGNORED),
    }
    return items("ImagePullSecret", described)
