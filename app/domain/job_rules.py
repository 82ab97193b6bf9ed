"""What a job document may mean: the rules that its shape alone cannot say, each a function that raises."""

from collections.abc import Callable

from app.domain import data_rules, model_rules, output_rules, training_rules
from app.domain.errors import BadSpec
from app.domain.job_document import Document, locations
from app.domain.locations import ReadingRules, check_model, check_output, check_script, check_source
from app.domain.not_supported import refuse_gaps

__all__ = ["RULES", "check", "locations"]


def check(document: Document, rules: ReadingRules) -> None:
    """Raise InvalidRequest, with field, rule and way out, for the first rule the document breaks."""
    for rule in RULES:
        rule(document)
    refuse_gaps(document)
    _check_locations(document, rules)


def devices_are_asked_for(document: Document) -> None:
    if document["resource_config"]["gpu_count"] < 1:
        raise BadSpec(
            "gpu_count must be at least 1; to train without GPUs ask for device_type cpu, where each one is a CPU slot",
            field="resource_config.gpu_count",
        )


def devices_are_of_one_kind(document: Document) -> None:
    resources = document["resource_config"]
    if resources.get("device_type") != "cpu":
        return
    for name in ("gpu_type", "gpu_memory_min_mb"):
        if resources.get(name):
            raise BadSpec(
                f"{name} asks for GPUs but device_type is cpu; leave one of them out", field=f"resource_config.{name}"
            )


# What later rules take for granted is checked by earlier ones.
RULES: tuple[Callable[[Document], None], ...] = (
    devices_are_asked_for,
    devices_are_of_one_kind,
    *training_rules.RULES,
    *model_rules.RULES,
    *data_rules.RULES,
    *training_rules.LATER_RULES,
    *output_rules.RULES,
)


def _check_locations(document: Document, rules: ReadingRules) -> None:
    for location, field in locations(document):
        if field.startswith("training_config.base_model"):
            check_model(location, rules, field=field)
        elif field.startswith("training_config.framework"):
            check_script(location, rules, field=field)
        else:
            check_source(location, rules, field=field)
    output_path = document["output_config"].get("output_path")
    if output_path:
        check_output(output_path, rules, field="output_config.output_path")
