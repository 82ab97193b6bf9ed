"""What a job's history shows of an inspection's report."""

from app.services.preflight.inspections import Report

_SOURCES = "sources"  # of a report
_PASSED = {  # by part of the report
    "image": "the registry has the image",
    "images": "the registries have the images",
    "packages": "the index has the packages",
    "code": "the repository has the code",
}


def without_content(report: Report) -> Report:
    """Without the records themselves: events are kept, exported and sent to others."""
    if not report.get(_SOURCES):
        return report
    kept = [{name: value for name, value in each.items() if name != "first_records"} for each in report[_SOURCES]]
    return {**report, _SOURCES: kept}


def summary(report: Report) -> str:
    """The report as an event's message."""
    parts = [error["message"] for error in report.get("errors", [])]
    parts += report.get("warnings", [])
    parts += [f"left to the node: {reason}" for reason in report.get("left_out", [])]
    passed = next((text for name, text in _PASSED.items() if report.get(name)), "model and data are valid")
    return "; ".join(parts) or passed
