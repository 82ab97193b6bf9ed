"""How the scheduler treats a job."""

from app.domain.routing import DEFAULT_PRIORITY
from app.schemas.documents import DocumentSchema
from app.schemas.strict_fields import Choice, Flag, Text, Texts, Whole, says

_TEN_YEARS = 10 * 366 * 86400


class SchedulingConfigSchema(DocumentSchema):
    queue = Text(longest=63, shortest=1, load_default="default", **says("The queue to wait in"))
    priority = Whole(0, 10, **says("10 is the most urgent", default=DEFAULT_PRIORITY))
    preemptible = Flag(
        load_default=False,
        **says("More urgent jobs of its project may take its devices, and other projects what it has borrowed"),
    )
    on_preemption = Choice(
        ("terminate", "requeue"),
        **says("What becomes of it when it has to give its devices up: PREEMPTED, or back to QUEUED",
               default="terminate"),
    )  # fmt: skip
    min_runtime_seconds = Whole(0, _TEN_YEARS, **says("It is not preempted before it has run so long", default=0))
    max_runtime_seconds = Whole(1, _TEN_YEARS, **says("The job fails when it runs longer; default no limit"))
    required_capabilities = Texts(**says("Words that the node's own capabilities must contain"))
