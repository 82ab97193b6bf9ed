"""How the scheduler treats a job."""

from app.schemas.documents import DocumentSchema
from app.schemas.strict_fields import Choice, Flag, Text, Texts, Whole

_TEN_YEARS = 10 * 366 * 86400


class SchedulingConfigSchema(DocumentSchema):
    queue = Text(longest=63, shortest=1, load_default="default")
    priority = Whole(0, 10)
    preemptible = Flag(load_default=False)
    on_preemption = Choice(("terminate", "requeue"))
    min_runtime_seconds = Whole(0, _TEN_YEARS)
    max_runtime_seconds = Whole(1, _TEN_YEARS)
    required_capabilities = Texts()
