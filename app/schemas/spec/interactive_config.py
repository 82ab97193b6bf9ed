"""Schema of ``interactive_config``: ports of a script, its readiness, a notebook, and what a failure leaves."""

import re
from typing import Any

from marshmallow import fields, validate

from app.domain.spec.interactive import PROTOCOLS, InteractiveConfig, Port, ReadinessProbe
from app.domain.spec.roles import ROLE_NAME
from app.domain.spec.rules.roles import MOST_INSTANCES
from app.schemas.documents import JobPartSchema
from app.schemas.spec.tasks import ROLE_RULE
from app.schemas.strict_fields import Choice, Flag, Matching, Text, Whole, says

MOST_PORTS = 16
MOST_AUTHORIZED = 64
LONGEST_KEPT_SECONDS = 7 * 24 * 3600
PORT_NAME = re.compile(r"(?!.{31})[a-z0-9]+(?:-[a-z0-9]+)*")
PORT_NAME_RULE = "must be 1 to 30 of a-z, 0-9 and single dashes, with none at its ends"
_PATH = re.compile(r"/[\x21-\x7e]{0,1023}")
_HIGHEST_PORT = 65535


def _port_number(**more: Any) -> Whole:
    return Whole(1, _HIGHEST_PORT, required=True, **more)


def _names(meaning: str) -> fields.List[str]:
    return fields.List(Text(longest=255, shortest=1), validate=validate.Length(max=MOST_AUTHORIZED), **says(meaning))


class PortSchema(JobPartSchema):
    name = Matching(
        PORT_NAME, PORT_NAME_RULE, required=True, **says("The port's name in its address; notebook is reserved")
    )
    port = _port_number(**says("The port on which the job listens in its sandbox, on 127.0.0.1 or ::1"))
    protocol = Choice(
        PROTOCOLS,
        **says(
            "http: browsers reach it through the gateway, also by WebSockets; tcp: port-forward alone",
            default=Port.protocol,
        ),
    )
    keep_prefix = Flag(
        **says(
            "true: requests arrive with the path's prefix, /jobs/JOB/ports/NAME, where one host serves all",
            default=Port.keep_prefix,
        )
    )
    authorized_users = _names(
        "Names of people and of API keys, or emails of people, who may open it beside the key that submitted the job "
        "and administrators; default all who may see the job"
    )
    authorized_groups = _names("Groups of the identity provider whose members may open it, too")
    role = Matching(
        ROLE_NAME,
        ROLE_RULE,
        **says("Of a job with tasks: the role that listens, on the node of its instance; default the node of rank 0"),
    )
    index = Whole(0, MOST_INSTANCES - 1, **says("The instance of the role", default=Port.index))


class ReadinessProbeSchema(JobPartSchema):
    port = _port_number(
        **says(
            "The port that is asked, where the first of ports with this number is; it need not be one of them: then on "
            "the node of rank 0"
        )
    )
    path = Matching(
        _PATH,
        "must be a path such as /health, of visible ASCII characters",
        **says("Asked by HTTP GET, 200 to 399 is a success; default: a connection is enough"),
    )
    initial_delay_seconds = Whole(
        0, 86400, **says("Before the first probe", default=ReadinessProbe.initial_delay_seconds)
    )
    period_seconds = Whole(1, 3600, **says("Between probes", default=ReadinessProbe.period_seconds))
    timeout_seconds = Whole(1, 300, **says("For one answer", default=ReadinessProbe.timeout_seconds))
    success_threshold = Whole(
        1, 100, **says("Successes in a row until the job is ready", default=ReadinessProbe.success_threshold)
    )
    failure_threshold = Whole(
        1, 100, **says("Failures in a row until it is not any more", default=ReadinessProbe.failure_threshold)
    )


class InteractiveConfigSchema(JobPartSchema):
    ports = fields.List(
        fields.Nested(PortSchema),
        validate=validate.Length(max=MOST_PORTS),
        **says("Ports of the job that people may open, by the gateway"),
    )
    readiness_probe = fields.Nested(
        ReadinessProbeSchema, **says("How the node asks the job whether it is ready; its answer never ends the job")
    )
    notebook = Flag(
        **says(
            "true: JupyterLab of the job's packages or image runs beside the script, as the port notebook",
            default=InteractiveConfig.notebook,
        )
    )
    terminal = Flag(
        **says(
            "true: output and error output of each rank are a terminal of 24 lines and 80 columns, whose input is "
            "empty: programs write into the log as they do for people",
            default=InteractiveConfig.terminal,
        )
    )
    keep_on_failure_seconds = Whole(
        0,
        LONGEST_KEPT_SECONDS,
        **says(
            "How long sandbox and devices stay when the script has failed, so that people can enter it; 0: not at all",
            default=InteractiveConfig.keep_on_failure_seconds,
        ),
    )
