"""How the scheduler treats a job."""

from app.domain.routing import DEFAULT_PRIORITY
from app.schemas.documents import DocumentSchema
from app.schemas.strict_fields import Choice, Flag, Text, Texts, Whole, says

_TEN_YEARS = 10 * 366 * 86400


class SchedulingConfigSchema(DocumentSchema):
    queue = Text(longest=63, shortest=1, load_default="default", **says("The queue to wait in"))
    priority = Whole(0, 10, **says("10 is the most urgent", default=DEFAULT_PRIORITY))
    preemptible = Flag(load_default=False, **says("Only false is supported yet"))
    on_preemption = Choice(("terminate", "requeue"), **says("Only terminate is supported yet", default="terminate"))
    min_runtime_seconds = Whole(0, _TEN_YEARS, **says("Only 0 is supported yet", default=0))
    max_runtime_seconds = Whole(1, _TEN_YEARS, **says("The job fails when it runs longer; default no limit"))
    required_capabilities = Texts(**says("Words that the node's own capabilities must contain"))
