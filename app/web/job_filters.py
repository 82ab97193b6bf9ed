"""The filters of the list of jobs as its URL has them, and the URLs of lists that differ in one of them."""

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from urllib.parse import urlencode

from marshmallow import fields, validate

from app.domain.errors import InvalidRequest
from app.domain.lifecycle.states import HELD, TERMINAL, JobState
from app.domain.spec.hyperparameters.parsing import CUSTOM
from app.domain.spec.inference import ENGINES, KINDS, TYPES
from app.schemas.documents import RequestSchema
from app.schemas.jobs import LABEL_KEY
from app.schemas.queries import OrderBy, QueryTexts
from app.schemas.spec.training_config import FRAMEWORKS, TRAINING_TYPES
from app.schemas.strict_fields import Text

# Names for several states at once.
GROUPS: dict[str, tuple[str, Sequence[JobState]]] = {
    "waiting": ("Waiting", (JobState.PENDING, JobState.QUEUED)),
    "running": ("Running", tuple(state for state in JobState if state in HELD)),
    "unfinished": ("Not ended", tuple(state for state in JobState if state not in TERMINAL)),
    "ended": ("Ended", tuple(state for state in JobState if state in TERMINAL)),
}
SPANS = {
    "1h": ("the last hour", timedelta(hours=1)),
    "24h": ("the last 24 hours", timedelta(hours=24)),
    "7d": ("the last 7 days", timedelta(days=7)),
    "30d": ("the last 30 days", timedelta(days=30)),
}
STATES = tuple(map(str, JobState))
METHODS = (*TRAINING_TYPES, CUSTOM, *TYPES.values())
FRAMEWORK_NAMES = (*FRAMEWORKS, *ENGINES)
MOST_COLUMNS = 16
# Our name → that of the service, of filters that take one value.
_SINGLE = {
    "name": "name",
    "project": "project",
    "queue": "queue",
    "framework": "framework",
    "kind": "kind",
    "method": "training_type",
    "sweep": "sweep_id",
    "parent": "parent_job_id",
}


class Given(QueryTexts):
    """A parameter of a form that is sent by GET: fields that the person left empty arrive, and are left out.

    Unlike its base it does not split at commas.
    """

    def __init__(self, item: fields.Field[Any] | None = None, **more: Any) -> None:
        super().__init__(item or Text(longest=128), load_default=list, **more)

    def _deserialize(
        self, value: Sequence[str], attr: str | None, data: Mapping[str, Any] | None, **kwargs: Any
    ) -> list[Any]:
        return super(QueryTexts, self)._deserialize([text for text in value if text], attr, data, **kwargs)


class JobsQuerySchema(RequestSchema):
    """Lists, of which most filters take the last value."""

    name = Given()
    state = Given(fields.String(validate=validate.OneOf([*GROUPS, *STATES])))
    project = Given()
    queue = Given()
    method = Given(fields.String(validate=validate.OneOf(METHODS)))
    framework = Given(fields.String(validate=validate.OneOf(FRAMEWORK_NAMES)))
    kind = Given(fields.String(validate=validate.OneOf(KINDS)))
    label = Given(Text(longest=320))
    creator = Given()
    within = Given(fields.String(validate=validate.OneOf(list(SPANS))))
    ended = Given(fields.String(validate=validate.OneOf(list(SPANS))))
    after = Given(fields.Date())
    before = Given(fields.Date())
    sweep = Given()
    parent = Given()
    column = Given(Text(longest=160), validate=validate.Length(max=MOST_COLUMNS))
    metric = Given()
    parameter = Given()
    order_by = OrderBy("created_at", "priority", "name", "status")
    page_token = fields.String(load_default="", validate=validate.Length(max=1024))


def asked(query: Mapping[str, Any], *, now: datetime) -> dict[str, Any]:
    """The filters of the service; those by creator are left to the caller, who knows the keys."""
    found: dict[str, Any] = {name: query[ours][-1] for ours, name in _SINGLE.items() if query[ours]}
    states = [state for each in query["state"] for state in (GROUPS[each][1] if each in GROUPS else (each,))]
    if states:
        found["status"] = list(dict.fromkeys(str(state) for state in states))
    if query["label"]:
        found["labels"] = [label_of(text) for text in query["label"]]
    # The latest start and the earliest end of those that are given; days are of UTC.
    starts = [now - SPANS[each][1] for each in query["within"]] + [_midnight(each) for each in query["after"]]
    ends = [_midnight(each + timedelta(days=1)) for each in query["before"]]
    if starts:
        found["created_after"] = max(starts)
    if ends:
        found["created_before"] = min(ends)
    if query["ended"]:
        found["finished_after"] = now - SPANS[query["ended"][-1]][1]
    return found


def canonical(arguments: Sequence[tuple[str, str]], defaults: Sequence[str]) -> list[tuple[str, str]]:
    """The arguments without empty ones; added metrics and hyperparameters are columns, and default columns implied."""
    kept = [(name, value.strip()) for name, value in arguments if value.strip()]
    added = {"metric": "metric:", "parameter": "parameter:"}
    columns = [value for name, value in kept if name == "column"]
    more = [added[name] + value for name, value in kept if name in added]
    if more:
        columns = [*(columns or defaults), *more]
    columns = list(dict.fromkeys(columns))
    others = [(name, value) for name, value in kept if name not in {"column", *added}]
    if columns == list(defaults):
        columns = []
    return [*dict.fromkeys(others), *(("column", each) for each in columns)]


def with_changed(path: str, arguments: Sequence[tuple[str, str]], **changes: str) -> str:
    """The URL of the list with other values; an empty one leaves the argument out. It begins at its first page."""
    kept = [(name, value) for name, value in arguments if name not in changes and name != "page_token"]
    found = urlencode([*kept, *((name, value) for name, value in changes.items() if value)])
    return f"{path}?{found}" if found else path


def label_of(text: str) -> tuple[str, str]:
    """Key and value of a filter as a person types it. Raises InvalidRequest."""
    key, equals, value = text.partition("=")
    if not equals or LABEL_KEY.fullmatch(key.strip()) is None:
        raise InvalidRequest("must be a label as key=value, such as team=vision", field="label")
    return key.strip(), value.strip()


def is_label(text: str) -> bool:
    try:
        label_of(text)
    except InvalidRequest:
        return False
    return True


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)
