"""The scheduling section of a job document: queue, priority, preemption and time limits."""

from app.domain.spec.model import SchedulingConfig
from app.schemas.documents import JobPartSchema
from app.schemas.strict_fields import Choice, Flag, Text, Texts, Whole, says

_TEN_YEARS = 10 * 366 * 86400


class SchedulingConfigSchema(JobPartSchema):
    queue = Text(longest=63, shortest=1, load_default=SchedulingConfig.queue, **says("The queue of the job"))
    priority = Whole(0, 10, **says("0 to 10; 10 is the most urgent", default=SchedulingConfig.priority))
    preemptible = Flag(
        load_default=SchedulingConfig.preemptible,
        **says("Whether higher-priority jobs of the project, and projects reclaiming borrowed devices, may preempt it"),
    )
    on_preemption = Choice(
        ("terminate", "requeue"),
        **says(
            "Action on preemption: terminate ends it as PREEMPTED, requeue returns it to QUEUED",
            default=SchedulingConfig.on_preemption,
        ),
    )
    min_runtime_seconds = Whole(
        0,
        _TEN_YEARS,
        **says("Minimum runtime before it may be preempted", default=SchedulingConfig.min_runtime_seconds),
    )
    max_runtime_seconds = Whole(1, _TEN_YEARS, **says("Maximum runtime, after which the job fails; default no limit"))
    wait_for_node = Flag(
        **says(
            "true: the job waits for a node that can hold it, instead of being refused",
            default=SchedulingConfig.wait_for_node,
        )
    )
    required_capabilities = Texts(**says("Capabilities that the node must have"))
