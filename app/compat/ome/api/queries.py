"""Query parameters of Kubernetes' API; those that only say how to answer are taken and nothing comes of them."""

from typing import Any

from marshmallow import Schema, validate

from app.schemas.queries import QueryFlag, QueryWhole
from app.schemas.strict_fields import Choice, Text, says

_TAKEN = says("Taken; nothing comes of it")


class Truth(QueryFlag):
    """Also as Go's and Python's clients write it."""

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> bool:
        return super()._deserialize(value.lower() if isinstance(value, str) else value, *args, **kwargs)


class ReadQuerySchema(Schema):
    pretty = Text(longest=8, **_TAKEN)
    timeout = Text(longest=16, **_TAKEN)
    resourceVersion = Text(longest=32, **_TAKEN)  # noqa: N815 – the names on the wire, here and below


class ObjectQuerySchema(ReadQuerySchema):
    includeObject = Choice(  # noqa: N815
        ("None", "Metadata", "Object"), **says("What goes with each row where a Table is asked for; else Metadata")
    )


class WriteQuerySchema(Schema):
    dryRun = Choice(("All",), **says("Check everything, write nothing, and answer as if it were written"))  # noqa: N815
    pretty = Text(longest=8, **_TAKEN)
    timeout = Text(longest=16, **_TAKEN)
    fieldManager = Text(longest=128, **_TAKEN)  # noqa: N815
    fieldValidation = Text(longest=16, **says("Taken; fields that are not known are refused in any case"))  # noqa: N815
    force = Truth(**_TAKEN)
    propagationPolicy = Text(longest=32, **_TAKEN)  # noqa: N815
    gracePeriodSeconds = QueryWhole(0, 10**9, **_TAKEN)  # noqa: N815


class ListQuerySchema(ObjectQuerySchema):
    labelSelector = Text(longest=1024, load_default="")  # noqa: N815
    fieldSelector = Text(longest=1024, load_default="")  # noqa: N815
    limit = QueryWhole(0, 10_000, load_default=0, **says("0: all"))
    resourceVersionMatch = Text(longest=32, **_TAKEN)  # noqa: N815


ListQuerySchema._declared_fields["continue"] = Text(longest=128, load_default="", **says("Of the list before"))  # noqa: SLF001


class WatchQuerySchema(ListQuerySchema):
    watch = Truth(load_default=False, **says("true: a stream of changes, one JSON object in a line"))
    timeoutSeconds = QueryWhole(1, 86_400, load_default=3600)  # noqa: N815
    allowWatchBookmarks = Truth(**_TAKEN)  # noqa: N815
    sendInitialEvents = Truth(  # noqa: N815
        validate=validate.Equal(False, error="is not supported; list, and watch from the list's resourceVersion"),
        **says("true is refused: clients list then, and watch"),
    )


class LogQuerySchema(ReadQuerySchema):
    container = Text(longest=63)
    tailLines = QueryWhole(0, 50_000)  # noqa: N815
    follow = Truth(load_default=False)
    previous = Truth(load_default=False)
    timestamps = Truth(load_default=False)
    limitBytes = QueryWhole(1, 2**31 - 1)  # noqa: N815
    sinceSeconds = QueryWhole(1, 10**9)  # noqa: N815
    insecureSkipTLSVerifyBackend = Truth(**_TAKEN)  # noqa: N815
