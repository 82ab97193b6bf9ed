"""Checks of how attempts ended of late: that we could write it, and that no node is the place where jobs fail."""

from app.domain.nodes.quarantine import reason_for
from app.services.attempts import outcome_errors
from app.services.nodes import quarantine
from app.services.operations.diagnosis.findings import Findings, failed, fine, warning
from app.services.operations.diagnosis.site import Site

SHOWN = 3


def written(site: Site) -> Findings:
    with site.db.read() as session:
        count, jobs = outcome_errors.count(session), outcome_errors.newest(session, SHOWN)
    if not count:
        return fine("Trainyard could write how attempts ended")
    return failed(
        f"Trainyard itself failed to write the end of {count} attempt(s) within 24 hours, which is no node's fault "
        f"({outcome_errors.CAUSE}); the newest: {', '.join(jobs)}",
        "report this as a fault, with the traceback in the log of the coordinator or in supervisors.log of their node",
    )


def suspected_nodes(site: Site) -> Findings:
    """What is not proven quarantines none; enough of it is for a person to look at."""
    rule = quarantine.rule_of(site.settings)
    with site.db.read() as session:
        found = quarantine.suspected(session, rule)
    findings: Findings = []
    for node, faults in found.items():
        if reason_for(faults, rule):
            findings += warning(
                f"attempts of {len({fault.job_id for fault in faults})} jobs ended on {node} by its doing or by theirs "
                f"({', '.join(sorted({fault.cause for fault in faults}))}), and none got further on another node",
                "look at their attempts and at the machine; `trainyard nodes drain NAME` keeps further jobs away",
            )
    return findings or fine("no node is suspected of failing jobs")
