"""Volume claims that a job mounts, looked at where this machine has the claims of the job's project."""

import os.path
from pathlib import Path

from app.domain.spec.locations.paths import ReadingRules, within
from app.domain.spec.model import CLAIM, JobDocument


def missing_claim(document: JobDocument, rules: ReadingRules) -> str:
    """What is wrong with the first claim that is mounted, not made, and not there; empty for nothing.

    Claims below the platform's own directory are those of one machine, and nodes may have others.
    """
    if not rules.claims_dir or not rules.project:
        return ""
    claims = Path(rules.real_path(rules.claims_dir), rules.project)
    is_ours = bool(rules.data_dir) and within(str(claims), rules.real_path(rules.data_dir))
    if is_ours or not os.path.isdir(claims):  # noqa: PTH112 – never raises
        return ""
    for number, mount in enumerate(document.resource_config.mounts):
        is_own = mount.type == CLAIM and mount.claim not in rules.shared_claims
        if is_own and not mount.create and not os.path.isdir(claims / mount.claim):  # noqa: PTH112 – never raises
            return (
                f"resource_config.mounts.{number}.claim: the project {rules.project} has no volume claim "
                f"{mount.claim}; set create, or name another"
            )
    return ""
