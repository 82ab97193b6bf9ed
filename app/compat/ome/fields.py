"""The effect of each field of OME's manifests: TrainingJobs, runtimes and base models."""

import posixpath
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from app.compat.images import IN_AN_IMAGE
from app.compat.ome.places import OF_DATA, OF_DATASETS, OF_MODEL, places_with_paths
from app.compat.ome.pod_volumes import pod_volumes_of
from app.compat.ome.templates import POD, containers_of, pod_of, replicated_of
from app.domain.spec.rules.mounts import why_not_free
from app.domain.spec.rules.training import is_reserved
from app.schemas.spec.field_verdicts import FieldRule, Table, acted_on, refused, warned, warning, warnings_of

_SERVER_SET = acted_on("written by the server; a value that a client sends back is ignored, as in Kubernetes")
_HOST = warned("jobs run on the node itself, without containers")
_METADATA: Table = {
    "apiVersion": acted_on("must be ome.io/v1beta1"),
    "kind": acted_on("must be the kind of the path"),
    "status": _SERVER_SET,
    "metadata.name": acted_on("names the object"),
    "metadata.namespace": acted_on("must be the namespace of the path, a project"),
    "metadata.generateName": acted_on("prefix of a generated name where there is none"),
    "metadata.labels": acted_on("stored and returned; label selectors match them"),
    "metadata.annotations": acted_on("stored and returned, without secrets"),
    "metadata.resourceVersion": acted_on("a change of another version is refused with 409"),
    **{
        f"metadata.{name}": _SERVER_SET
        for name in ("uid", "generation", "creationTimestamp", "deletionTimestamp", "managedFields", "selfLink")
    },
    "metadata.finalizers": warned("finalizers do not delay deletion"),
    "metadata.ownerReferences": warned("an object stays when its owner is deleted"),
}


_STORES = "s3://, oci:// and obs://"
_NODES = warned("nodes are selected by resources; the native field required_node_labels selects by labels")
_OTHERWISE = "unknown names are refused; a local path has a warning"
_KEY = acted_on(
    f"a secret of the project, as files: for {_STORES} access_key_id, secret_access_key and optionally session_token, "
    "endpoint_url, region; for https:// token, or username and password, or headers; for hf:// token. A missing secret "
    "is refused; a local path has a warning"
)


def _storage(prefix: str, **rules: FieldRule) -> Table:
    common = {
        "schemaPath": warned("data schemas are not supported"),
        "parameters": acted_on(f"region, endpoint_url and namespace of {_STORES}; {_OTHERWISE}"),
        "storageKey": _KEY,
        "key": _KEY,
        "nodeSelector": _NODES,
        "nodeAffinity": _NODES,
    }
    return {f"{prefix}.{name}": rule for name, rule in {**common, **rules}.items()}


_TUNING = "spec.hyperParameterTuningConfig"
FIELDS: Table = {
    **_METADATA,
    "spec.runtimeRef.name": acted_on("the runtime, which gives defaults for the job"),
    "spec.runtimeRef.kind": acted_on("ClusterTrainingRuntime, or TrainingRuntime of the namespace"),
    "spec.runtimeRef.apiGroup": acted_on("must be ome.io"),
    "spec.trainer.image": acted_on(f"{IN_AN_IMAGE}; with mpirun and built-in trainers, too"),
    "spec.trainer.command": acted_on("the program of each rank; without one the runtime's built-in trainer runs"),
    "spec.trainer.args": acted_on("arguments of the command; for the built-in trainer options --NAME VALUE"),
    "spec.trainer.env.name": acted_on("an environment variable of the ranks; one that the platform sets has a warning"),
    "spec.trainer.env.value": acted_on("its value"),
    "spec.trainer.env.valueFrom": acted_on("secretKeyRef: a secret file of the project; other sources have a warning"),
    "spec.trainer.numNodes": acted_on("number of nodes, scheduled together"),
    "spec.trainer.numProcPerNode": acted_on("ranks per node"),
    "spec.trainer.resourcesPerNode.requests": acted_on(
        "GPUs, MIG slices, cpu, memory and ephemeral-storage are reserved; a resource that no node has is refused"
    ),
    "spec.trainer.resourcesPerNode.limits": acted_on(
        "reserved where requests do not name the resource; cpu and memory are limited, on nodes that offer `limits`"
    ),
    "spec.trainer.resourcesPerNode.claims": refused("resource claims are not supported; use requests"),
    "spec.trainer.codeUri": acted_on("extension: the directory of code in which the command starts"),
    "spec.modelConfig.inputModel": acted_on(
        "a BaseModel of the namespace; else a directory, a hub's model id, or a URI"
    ),
    **_storage(
        "spec.modelConfig.outputModel",
        storageUri=acted_on("destination of the model; the FineTunedWeight refers to it"),
        path=acted_on("the output directory lies there, on nodes with a sandbox, for a command"),
    ),
    **_storage(
        "spec.datasets",
        storageUri=acted_on("the data of the job"),
        path=acted_on("the data lies there, read-only, on nodes with a sandbox, for a command"),
        parameters=acted_on(
            "format and compression, for the built-in trainer; region, endpoint_url and namespace of "
            f"{_STORES}; {_OTHERWISE}"
        ),
    ),
    f"{_TUNING}.method": acted_on("a sweep: grid, random, or bayes (tpe)"),
    f"{_TUNING}.metric.name": acted_on(
        "of a command the number after NAME= or NAME: in its lines, or what it reports; else a metric of the trainer"
    ),
    f"{_TUNING}.metric.goal": acted_on("minimize or maximize"),
    f"{_TUNING}.parameters": acted_on(
        "what varies: of a command as $(NAME), as --NAME where args have that, and as variables; else hyperparameters; "
        "without any, the learning rate of a built-in trainer"
    ),
    f"{_TUNING}.maxTrials": acted_on("how many trials; of a grid all without it"),
    "spec.suspend": acted_on("true: created suspended, or paused; false: resumed"),
    "spec.labels": acted_on("labels of the job and of its pods"),
    "spec.annotations": acted_on("annotations of the pods"),
    "spec.compartmentID": warned("compartments are not supported; a namespace is a project"),
}
RUNTIME_FIELDS: Table = {
    **_METADATA,
    "spec.trainer.framework": acted_on("extension: the built-in trainer of jobs without a command"),
    "spec.trainer.trainingType": acted_on("extension: training method"),
    "spec.trainer.hyperparameters": acted_on("extension: hyperparameters; args of the job override them"),
    "spec.trainer.maxSeqLength": acted_on("extension: tokens per sequence"),
    "spec.trainer.batchSize": acted_on("extension: records per device and forward pass"),
    "spec.mlPolicy.numNodes": acted_on("default number of nodes"),
    "spec.mlPolicy.torch.numProcPerNode": acted_on("default ranks per node"),
    "spec.mlPolicy.torch.elasticPolicy": warned("the number of nodes of a job is fixed"),
    "spec.mlPolicy.mpi.numProcPerNode": acted_on("default ranks per node"),
    "spec.mlPolicy.mpi.mpiImplementation": acted_on("OpenMPI; others are refused"),
    "spec.mlPolicy.mpi.sshAuthMountPath": warned("ranks are started without SSH"),
    "spec.mlPolicy.mpi.runLauncherAsNode": warned("the platform launches the ranks; no node is needed for a launcher"),
    "spec.podGroupPolicy": warned("gang scheduling is always on; timeouts and schedulers can't be set"),
    "spec.template": acted_on(
        "image, command, args, env and resources of the container trainer, and where it mounts volumes emptyDir and "
        "persistentVolumeClaim; with MPI of the launcher that runs mpirun, and the resources of its workers; other "
        "replicated jobs with containers are refused, other parts have a warning"
    ),
    "spec.labels": warned("the labels of the job are used"),
    "spec.annotations": warned("the annotations of the job are used"),
    "spec.compartmentID": warned("compartments are not supported; a namespace is a project"),
}
_RETURNED = acted_on("stored and returned")
MODEL_FIELDS: Table = {
    **_METADATA,
    **_storage(
        "spec.storage",
        storageUri=acted_on("the model that jobs with this base model start from"),
        path=acted_on("the model lies there, read-only, on nodes with a sandbox, for a command"),
    ),
    "spec.disabled": acted_on("true: jobs with this base model are refused"),
    **{
        f"spec.{name}": _RETURNED
        for name in (
            "displayName",
            "vendor",
            "version",
            "modelType",
            "modelArchitecture",
            "modelParameterSize",
            "modelFormat",
            "modelFramework",
            "modelCapabilities",
            "modelConfiguration",
            "maxTokens",
            "quantization",
            "servingMode",
            "additionalMetadata",
            "compartmentID",
        )
    },
}
# Parts of the trainer container of a runtime's template that have an effect.
_USED = frozenset({"name", "image", "command", "args", "env", "resources", "volumeMounts"})


def job_warnings(
    manifest: Mapping[str, Any], *, runs_command: bool, secrets: Collection[str], model_path: str = ""
) -> list[str]:
    """Warnings of a job merged with its runtime; ``secrets`` are the variables that are read from secret files,
    ``model_path`` is where its base model is to lie.
    """
    trainer, datasets = manifest["spec"]["trainer"], manifest["spec"].get("datasets") or {}
    found = warnings_of(manifest, FIELDS)
    for variable in trainer.get("env") or []:
        field = f"spec.trainer.env.{variable['name']}"
        if is_reserved(variable["name"]):
            found.append(warning(field, "the platform sets this variable"))
        elif variable.get("valueFrom") and variable["name"] not in secrets:
            found.append(
                warning(
                    f"{field}.valueFrom", "only secretKeyRef with name and key is supported: the variable is not set"
                )
            )
    found += [
        warning(field if field == OF_MODEL else f"{field}.path", why)
        for field, why in _paths_without_effect(manifest, model_path, runs_command=runs_command)
    ]
    for name in datasets.get("parameters") or {}:
        if runs_command and name in OF_DATA:
            found.append(warning(f"spec.datasets.parameters.{name}", "a command reads the files as they are"))
    return found


def _paths_without_effect(
    manifest: Mapping[str, Any], model_path: str, *, runs_command: bool
) -> Iterator[tuple[str, str]]:
    """Places with a path at which nothing is mounted, and why."""
    for field, place in places_with_paths(manifest["spec"], model_path).items():
        if field == OF_DATASETS and not place.get("storageUri"):
            yield field, "there is no storageUri"
        elif not runs_command:
            yield field, "the built-in trainer reads data and writes models where they are"
        elif why := why_not_free(posixpath.normpath(place["path"])):
            yield field, f"{place['path']} {why}"


def runtime_warnings(manifest: Mapping[str, Any]) -> list[str]:
    template = manifest["spec"].get("template") or {}
    why = (
        "has no effect: of a template, image, command, args, env and resources of the container trainer are used, and "
        "its volumes emptyDir, persistentVolumeClaim, secret and configMap"
    )
    return warnings_of(manifest, RUNTIME_FIELDS) + [warning(f"spec.template{path}", why) for path in _unused(template)]


def _unused(template: Mapping[str, Any]) -> Iterator[str]:
    """Parts of a JobSet without an effect on jobs."""
    yield from pod_volumes_of(template).unused
    yield from _others(template, "", {"metadata", "spec"})
    spec = template.get("spec")
    yield from _others(spec, ".spec", {"replicatedJobs"})
    jobs = spec.get("replicatedJobs") if isinstance(spec, Mapping) else None
    trainer = next(iter(replicated_of(template)), None)
    for number, job in enumerate(jobs if isinstance(jobs, list) else []):
        path = f".spec.replicatedJobs.{number}"
        if trainer is None or number != trainer.number:
            yield path
            continue
        pod = pod_of(job)
        path += "".join(f".{key}" for key in POD)
        yield from _others(pod, path, {"containers", "volumes"})
        for index, each in enumerate(containers_of(pod)):
            here = f"{path}.containers.{index}"
            yield from _others(each, here, _USED) if each is trainer.main else (here,)


def _others(part: object, path: str, used: frozenset[str] | set[str]) -> Iterator[str]:
    yield from (f"{path}.{name}" for name in part if name not in used) if isinstance(part, Mapping) else ()
