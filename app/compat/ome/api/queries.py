"""Query parameters of Kubernetes' API."""

from typing import Any

from marshmallow import Schema, validate

from app.schemas.queries import QueryFlag, QueryWhole
from app.schemas.strict_fields import Choice, Text, says

_IGNORED = says("Accepted but ignored")


class Truth(QueryFlag):
    """A boolean in any case: Python's client writes True."""

    def _deserialize(self, value: object, *args: Any, **kwargs: Any) -> bool:
        return super()._deserialize(value.lower() if isinstance(value, str) else value, *args, **kwargs)


class ReadQuerySchema(Schema):
    pretty = Text(longest=8, **_IGNORED)
    timeout = Text(longest=16, **_IGNORED)
    resourceVersion = Text(longest=32, **_IGNORED)  # noqa: N815 – the names on the wire, here and below


class ObjectQuerySchema(ReadQuerySchema):
    includeObject = Choice(  # noqa: N815
        ("None", "Metadata", "Object"), **says("The object in each row of a Table; default Metadata")
    )


class WriteQuerySchema(Schema):
    dryRun = Choice(("All",), **says("Check the request and return the result without writing it"))  # noqa: N815
    pretty = Text(longest=8, **_IGNORED)
    timeout = Text(longest=16, **_IGNORED)
    fieldManager = Text(longest=128, **_IGNORED)  # noqa: N815
    fieldValidation = Text(longest=16, **says("Accepted but ignored: unknown fields are always refused"))  # noqa: N815
    force = Truth(**_IGNORED)
    propagationPolicy = Text(longest=32, **_IGNORED)  # noqa: N815
    gracePeriodSeconds = QueryWhole(0, 10**9, **_IGNORED)  # noqa: N815


class ObjectListQuerySchema(ObjectQuerySchema):
    labelSelector = Text(longest=1024, load_default="")  # noqa: N815
    fieldSelector = Text(longest=1024, load_default="")  # noqa: N815
    limit = QueryWhole(0, 10_000, load_default=0, **says("0: all"))
    resourceVersionMatch = Text(longest=32, **_IGNORED)  # noqa: N815


ObjectListQuerySchema._declared_fields["continue"] = Text(  # noqa: SLF001
    longest=128, load_default="", **says("The token of the previous page")
)


class WatchQuerySchema(ObjectListQuerySchema):
    watch = Truth(load_default=False, **says("true: a stream of changes, one JSON object per line"))
    timeoutSeconds = QueryWhole(1, 86_400, load_default=3600)  # noqa: N815
    allowWatchBookmarks = Truth(**_IGNORED)  # noqa: N815
    sendInitialEvents = Truth(  # noqa: N815
        validate=validate.Equal(False, error="is not supported; list, and watch from the list's resourceVersion"),
        **says("true is refused: list, and watch from there"),
    )


class PodLogQuerySchema(ReadQuerySchema):
    container = Text(longest=63)
    tailLines = QueryWhole(0, 50_000)  # noqa: N815
    follow = Truth(load_default=False)
    previous = Truth(load_default=False)
    timestamps = Truth(load_default=False)
    limitBytes = QueryWhole(1, 2**31 - 1)  # noqa: N815
    sinceSeconds = QueryWhole(1, 10**9)  # noqa: N815
    insecureSkipTLSVerifyBackend = Truth(**_IGNORED)  # noqa: N815
