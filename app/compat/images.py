"""Images of containers → the image of a job. Pure."""

from typing import Any

from app.domain.spec.locations.images import ALWAYS, IF_MISSING, NEVER, parse

# Of Kubernetes.
PULL_POLICIES = {"Always": ALWAYS, "IfNotPresent": IF_MISSING, "Never": NEVER}
NO_REGISTRIES = (
    "the job runs with the programs of the nodes: the operator has named no registries (TRAINYARD_IMAGES_SOURCES)"
)
ITS_OWN_PROGRAM = "built-in trainers run with the programs of the nodes"
OF_MPI = "mpirun starts ranks with the programs of the nodes"
IN_AN_IMAGE = "the image in which the program runs, where the operator has named registries; else it has a warning"


def native_image(reference: str, policy: str = "") -> dict[str, Any]:
    """The field ``image`` of ``resource_config``; without a policy that of Kubernetes. Raises BadSpec."""
    usual = ALWAYS if parse(reference).tag == "latest" else IF_MISSING
    return {"image": {"reference": reference, "pull_policy": PULL_POLICIES.get(policy, usual)}}
