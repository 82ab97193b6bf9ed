"""Query parameters of ModelArts' API."""

from marshmallow import Schema

from app.schemas.queries import QueryMoment, QueryWhole, one_of
from app.schemas.strict_fields import Text, says

LEVELS = ("Info", "Warning", "Error")
SOURCES = ("K8S", "Job", "Task")


class NameQuerySchema(Schema):
    job_name = Text(longest=64, required=True)
    workspace_id = Text(longest=64, **says("Ignored: there is one workspace"))


class FlavorsQuerySchema(Schema):
    flavor_type = one_of(("CPU", "GPU", "Ascend"))


class QuotasQuerySchema(Schema):
    user_id = Text(longest=64, **says("Ignored: quotas are per project"))
    resource = Text(longest=64)


class EventsQuerySchema(Schema):
    offset = QueryWhole(0, 10_000, load_default=0)
    limit = QueryWhole(1, 100, load_default=50)
    order = one_of(("asc", "desc"))
    start_time = QueryMoment()
    end_time = QueryMoment()
    level = one_of(LEVELS)
    pattern = Text(longest=256)
    source = one_of(SOURCES)


class JobLogQuerySchema(Schema):
    base_line = Text(longest=32, **says("start_line or end_line of an earlier response"))
    lines = QueryWhole(1, 500, load_default=50)
    order = one_of(("asc", "desc"))


class TasksQuerySchema(Schema):
    schedule_count = QueryWhole(1, 10_000, **says("Only of this attempt"))


class TrialsQuerySchema(Schema):
    offset = QueryWhole(0, 10_000, load_default=0, **says("Number of the page, from 0"))
    limit = QueryWhole(1, 50, load_default=50)


class OffsetQuerySchema(Schema):
    limit = QueryWhole(1, 1000, load_default=1000)
    offset = QueryWhole(0, 10_000, load_default=0)
