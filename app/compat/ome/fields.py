"""What becomes of each field of OME's manifests: of jobs, of runtimes and of base models."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from app.compat.ome.places import OF_DATA
from app.domain.spec.rules.training import is_reserved
from app.schemas.spec.field_verdicts import FieldRule, Table, acted_on, refused, warned, warning, warnings_of

_SERVERS = acted_on("written by the server; a value that a client sends back is ignored, as in Kubernetes")
_HOST = warned("jobs run on the node itself, without containers")
_METADATA: Table = {
    "apiVersion": acted_on("must be ome.io/v1beta1"),
    "kind": acted_on("must be the kind of the path"),
    "status": _SERVERS,
    "metadata.name": acted_on("names the object"),
    "metadata.namespace": acted_on("must be the namespace of the path, a project"),
    "metadata.generateName": acted_on("begins the name where there is none"),
    "metadata.labels": acted_on("kept and returned; selectors choose by them"),
    "metadata.annotations": acted_on("kept and returned, without secrets"),
    "metadata.resourceVersion": acted_on("a change of another version is refused with 409"),
    **{
        f"metadata.{name}": _SERVERS
        for name in ("uid", "generation", "creationTimestamp", "deletionTimestamp", "managedFields", "selfLink")
    },
    "metadata.finalizers": warned("deleting waits for no finalizer"),
    "metadata.ownerReferences": warned("an object stays when its owner is deleted"),
}


_STORES = "s3://, oci:// and obs://"
_ELSE = "unknown names are refused, and a place on this installation's disks has a warning"
_KEY = acted_on(
    f"a secret of the project, as files: of {_STORES} access_key_id, secret_access_key and perhaps session_token, "
    "endpoint_url, region; of https:// token, or username and password, or headers; of hf:// token. A missing one is "
    "refused, and a place on this installation's disks has a warning"
)


def _storage(prefix: str, **rules: FieldRule) -> Table:
    usual = {
        "path": warned("data and models are used where they are, or fetched into the cache of a node"),
        "schemaPath": warned("no schema of the data is read"),
        "parameters": acted_on(f"region, endpoint_url and namespace of {_STORES}; {_ELSE}"),
        "storageKey": _KEY,
        "key": _KEY,
        "nodeSelector": warned("nodes are chosen by resources; natively required_node_labels chooses them by labels"),
        "nodeAffinity": warned("nodes are chosen by resources; natively required_node_labels chooses them by labels"),
    }
    return {f"{prefix}.{name}": rule for name, rule in {**usual, **rules}.items()}


NO_TUNING = "hyperparameter tuning is not supported yet; leave hyperParameterTuningConfig out"
_NO_TUNING = refused(NO_TUNING)
FIELDS: Table = {
    **_METADATA,
    "spec.runtimeRef.name": acted_on("the runtime says what the job leaves open"),
    "spec.runtimeRef.kind": acted_on("where the runtime is: of the cluster, or of the namespace"),
    "spec.runtimeRef.apiGroup": acted_on("must be ome.io"),
    "spec.trainer.image": _HOST,
    "spec.trainer.command": acted_on("the program of each rank; without one the runtime's built-in trainer runs"),
    "spec.trainer.args": acted_on("what the command, or as --NAME VALUE the built-in trainer, is called with"),
    "spec.trainer.env.name": acted_on("a variable of the ranks; one that the platform sets itself has a warning"),
    "spec.trainer.env.value": acted_on("its value"),
    "spec.trainer.env.valueFrom": acted_on("secretKeyRef: a secret file of the project; all else has a warning"),
    "spec.trainer.numNodes": acted_on("nodes of the job, all at once"),
    "spec.trainer.numProcPerNode": acted_on("ranks of each node"),
    "spec.trainer.resourcesPerNode.requests": acted_on(
        "GPUs, MIG slices, cpu, memory and ephemeral-storage are set aside; a resource that no node has is refused"
    ),
    "spec.trainer.resourcesPerNode.limits": acted_on(
        "set aside where requests do not name the resource; that use of cpu and memory is not limited has a warning"
    ),
    "spec.trainer.resourcesPerNode.claims": refused("there are no resource claims; ask for resources in requests"),
    "spec.trainer.codeUri": acted_on("extension: the directory of code in which the command starts"),
    "spec.modelConfig.inputModel": acted_on("a BaseModel of the namespace; else a directory, an id of a hub, or a URI"),
    **_storage(
        "spec.modelConfig.outputModel",
        storageUri=acted_on("where the model is written; a FineTunedWeight names it"),
    ),
    **_storage(
        "spec.datasets",
        storageUri=acted_on("the data of the job"),
        parameters=acted_on(
            "format and compression, for the built-in trainer; region, endpoint_url and namespace of "
            f"{_STORES}; {_ELSE}"
        ),
    ),
    **{
        f"spec.hyperParameterTuningConfig.{name}": _NO_TUNING
        for name in ("method", "metric.name", "metric.goal", "parameters", "maxTrials")
    },
    "spec.suspend": acted_on("true: created suspended, or paused; false: resumed"),
    "spec.labels": acted_on("labels of the job and of its pods"),
    "spec.annotations": acted_on("annotations of its pods"),
    "spec.compartmentID": warned("there are no compartments; a namespace is a project"),
}
RUNTIME_FIELDS: Table = {
    **_METADATA,
    "spec.trainer.framework": acted_on("extension: the built-in trainer of jobs without a command"),
    "spec.trainer.trainingType": acted_on("extension: its method"),
    "spec.trainer.hyperparameters": acted_on("extension: its hyperparameters; the job's args win"),
    "spec.trainer.maxSeqLength": acted_on("extension: tokens of a sequence"),
    "spec.trainer.batchSize": acted_on("extension: records per device and forward pass"),
    "spec.mlPolicy.numNodes": acted_on("nodes of a job that says none"),
    "spec.mlPolicy.torch.numProcPerNode": acted_on("ranks of each node of a job that says none"),
    "spec.mlPolicy.torch.elasticPolicy": warned("a job keeps the number of its nodes"),
    "spec.mlPolicy.mpi.numProcPerNode": acted_on("ranks of each node of a job that says none"),
    "spec.mlPolicy.mpi.mpiImplementation": acted_on("OpenMPI; others are refused"),
    "spec.mlPolicy.mpi.sshAuthMountPath": warned("ranks are started without SSH"),
    "spec.mlPolicy.mpi.runLauncherAsNode": warned("the launcher is the platform's and takes no node"),
    "spec.podGroupPolicy": warned("the nodes of a job always start together; timeouts and schedulers are not chosen"),
    "spec.template": acted_on(
        "command, args, env and resources of the container trainer; each other part has a warning"
    ),
    "spec.labels": warned("labels are those of the job"),
    "spec.annotations": warned("annotations are those of the job"),
    "spec.compartmentID": warned("there are no compartments; a namespace is a project"),
}
_DESCRIBED = acted_on("kept and returned")
MODEL_FIELDS: Table = {
    **_METADATA,
    **_storage(
        "spec.storage",
        storageUri=acted_on("what a job begins with that names the base model"),
    ),
    "spec.disabled": acted_on("true: a job that names it is refused"),
    **{
        f"spec.{name}": _DESCRIBED
        for name in (
            "displayName", "vendor", "version", "modelType", "modelArchitecture", "modelParameterSize", "modelFormat",
            "modelFramework", "modelCapabilities", "modelConfiguration", "maxTokens", "quantization", "servingMode",
            "additionalMetadata", "compartmentID",
        )
    },
}  # fmt: skip
_POD = ("template", "spec", "template", "spec")  # from a replicated job to what its pods are
# Of a container of a runtime's template.
_HEEDED = frozenset({"name", "command", "args", "env", "resources"})


def job_warnings(wanted: Mapping[str, Any], *, runs_command: bool, secrets: Collection[str]) -> list[str]:
    """Of a job with what it has from its runtime; ``secrets`` are the variables that are read from secret files."""
    trainer, datasets = wanted["spec"]["trainer"], wanted["spec"].get("datasets") or {}
    found = warnings_of(wanted, FIELDS)
    for variable in trainer.get("env") or []:
        field = f"spec.trainer.env.{variable['name']}"
        if is_reserved(variable["name"]):
            found.append(warning(field, "the platform sets it"))
        elif variable.get("valueFrom") and variable["name"] not in secrets:
            found.append(
                warning(f"{field}.valueFrom", "only secretKeyRef with name and key is known; the variable is not set")
            )
    limits = (trainer.get("resourcesPerNode") or {}).get("limits") or {}
    for name in ("cpu", "memory"):
        if name in limits:
            said = "is set aside; that no more is used is not enforced"
            found.append(warning(f"spec.trainer.resourcesPerNode.limits.{name}", said))
    for name in datasets.get("parameters") or {}:
        if runs_command and name in OF_DATA:
            found.append(warning(f"spec.datasets.parameters.{name}", "a command finds the files as they are"))
    return found


def runtime_warnings(wanted: Mapping[str, Any]) -> list[str]:
    template = wanted["spec"].get("template") or {}
    said = "has no effect: of a template command, args, env and resources of the container trainer are used"
    return warnings_of(wanted, RUNTIME_FIELDS) + [warning(f"spec.template{path}", said) for path in _unused(template)]


def _unused(template: Mapping[str, Any]) -> Iterator[str]:
    """Parts of a JobSet that no job is made of."""
    yield from _others(template, "", {"metadata", "spec"})
    spec = template.get("spec")
    yield from _others(spec, ".spec", {"replicatedJobs"})
    jobs = spec.get("replicatedJobs") if isinstance(spec, Mapping) else None
    has_trainer = False
    for number, job in enumerate(jobs if isinstance(jobs, list) else []):
        path = f".spec.replicatedJobs.{number}"
        pod = pod_of(job)
        containers = containers_of(pod)
        if has_trainer or not containers:
            yield path
            continue
        has_trainer = True
        path += "".join(f".{key}" for key in _POD)
        yield from _others(pod, path, {"containers"})
        trainer = next((each for each in containers if each.get("name") == "trainer"), containers[0])
        for index, each in enumerate(containers):
            here = f"{path}.containers.{index}"
            yield from _others(each, here, _HEEDED) if each is trainer else (here,)


def pod_of(job: Any) -> Mapping[str, Any]:
    """What a replicated job of a JobSet says of its pods; empty where its form is another one."""
    found = job
    for key in _POD:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def containers_of(pod: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    containers = pod.get("containers")
    return [each for each in containers if isinstance(each, Mapping)] if isinstance(containers, list) else []


def _others(part: Any, path: str, used: frozenset[str] | set[str]) -> Iterator[str]:
    yield from (f"{path}.{name}" for name in part if name not in used) if isinstance(part, Mapping) else ()
