"""The tracking section of a job document: services of the user's that receive the job's metrics."""

from typing import Any

from marshmallow import fields, pre_load, validate

from app.domain.spec.model import OFFLINE, ONLINE
from app.domain.spec.rules.tracking import KINDS, LONGEST_TAG, MOST_TAGS, MOST_TRACKERS, WANDB_URL
from app.schemas.documents import JobPartSchema
from app.schemas.strict_fields import Choice, Text, says


class TrackerSchema(JobPartSchema):
    kind = Text(longest=64, required=True, **says(f"The kind of service: {', '.join(KINDS)}"))
    mode = Choice(
        (ONLINE, OFFLINE),
        **says("Of wandb: offline writes the run as an artifact for `wandb sync` and sends nothing; default online"),
    )
    url = Text(
        longest=2048,
        **says(
            "The server's address, http or https, without credentials; a private one only if the operator allows it; "
            f"default of wandb: {WANDB_URL}",
            format="uri",
        ),
    )
    experiment = Text(
        longest=250,
        shortest=1,
        **says("The name of the experiment, or of W&B's project, created if missing; default the project of the job"),
    )
    entity = Text(longest=128, shortest=1, **says("Of wandb: the user or team; default that of the token's owner"))
    run_name = Text(longest=128, shortest=1, **says("The name of the run; default that of the job"))
    tags = fields.List(
        Text(longest=LONGEST_TAG, shortest=1),
        validate=validate.Length(max=MOST_TAGS),
        **says("Of wandb: tags of the run, besides those that are the labels of the job"),
    )
    username = Text(longest=255, **says("For servers with basic authentication; the token is its password"))
    token = Text(
        longest=4096,
        **says(
            "Stored encrypted, shown as ***; sent as a bearer token. Of wandb without url, default the key of the "
            "project that its operator stores"
        ),
    )

    @pre_load
    def _kind_alone(self, values: object, **_: Any) -> object:
        """Of a kind that is not served nothing else is read: the rule about the kind answers, not one about names."""
        if isinstance(values, dict) and isinstance(values.get("kind"), str) and values["kind"] not in KINDS:
            return {"kind": values["kind"]}
        return values


def tracker_list(**more: Any) -> fields.List[Any]:
    return fields.List(
        fields.Nested(TrackerSchema),
        validate=validate.Length(max=MOST_TRACKERS),
        **more,
        **says("Services that receive the job's parameters and metrics"),
    )
