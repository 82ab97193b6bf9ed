"""Checks of recent attempts: that outcomes were recorded, and that no node repeatedly fails jobs."""

from app.domain.nodes.quarantine import reason_for
from app.services.nodes import quarantine
from app.services.operations import unrecorded_outcomes
from app.services.operations.diagnosis.findings import Findings, failed, fine, warning
from app.services.operations.diagnosis.site import Site

SHOWN = 3


def written(site: Site) -> Findings:
    with site.db.read() as session:
        count, jobs = unrecorded_outcomes.count(session), unrecorded_outcomes.newest(session, SHOWN)
    if not count:
        return fine("the outcomes of attempts were recorded")
    return failed(
        f"Trainyard failed to record the outcome of {count} attempt(s) within 24 hours, which is not a node's fault "
        f"(OUTCOME_ERROR); the newest: {', '.join(jobs)}",
        "report this as a bug, with the traceback from the coordinator's log or supervisors.log of the node",
    )


def suspected_nodes(site: Site) -> Findings:
    """Unproven faults do not quarantine a node; enough of them call for an investigation."""
    rule = quarantine.rule_of(site.settings)
    with site.db.read() as session:
        found = quarantine.suspected(session, rule)
    findings: Findings = []
    for node, faults in found.items():
        if reason_for(faults, rule):
            findings += warning(
                f"attempts of {len({fault.job_id for fault in faults})} jobs ended on {node} by its doing or by theirs "
                f"({', '.join(sorted({fault.cause for fault in faults}))}), and none got further on another node",
                "investigate their attempts and the machine; `trainyard nodes drain NAME` stops scheduling jobs on it",
            )
    return findings or fine("no node is suspected of failing jobs")
