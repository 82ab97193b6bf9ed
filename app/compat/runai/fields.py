"""The effect of each field of Run:ai's trainings and distributed trainings."""

from collections.abc import Mapping
from typing import Any

from app.compat.images import IN_AN_IMAGE
from app.compat.runai.documents.requests import DistributedSchema, TrainingSchema
from app.schemas.spec.field_verdicts import (
    FieldRule,
    FieldVerdict,
    Table,
    acted_on,
    field_paths,
    warned,
    warning,
    warnings_of,
)

_ASKED = ("probes", "ports", "exposedUrls")
# Fields of masterSpec with an effect.
_MASTER_FIELDS = ("command", "args", "image", "imagePullPolicy", "environmentVariables", "compute", *_ASKED)
_EXCLUDE = acted_on("true: the item is ignored")
_RETURNED = acted_on("stored and returned")
_NAME_OF_VOLUME = acted_on("stored and returned; names the volume in warnings")
_MOUNT_PATH = acted_on(
    "the volume lies there, on nodes with a sandbox; in command, args, workingDir and variables the path works on all "
    "nodes"
)
_READ_ONLY = acted_on("volumes are read-only; false has a warning")
_NOT_ENFORCED = warned("the limit is not enforced")
_OF_THE_OPERATOR = "one that the operator does not provide has a warning"
_FILES_PATH = "the files lie there, on nodes with a sandbox; a path of the system has a warning"
_FILES_MODE = acted_on(
    "permissions of the files, 0400 without it; one that does not let the owner read is refused with 400"
)
_OPENS = acted_on("opens a repository that is cloned; else it has a warning")

_PROBE = "probes.readiness"
_READINESS: Table = {
    "initialDelaySeconds": acted_on("the pause before the first probe; at most a day"),
    "periodSeconds": acted_on("the interval of probes; at most an hour"),
    "timeoutSeconds": acted_on("the time for an answer; more than periodSeconds has a warning"),
    "successThreshold": acted_on("successes in a row until the condition Ready of the workload is True"),
    "failureThreshold": acted_on("failures in a row until it is False; the workload runs on"),
    "handler.httpGet.path": acted_on("asked by GET; 200 to 399 is a success"),
    "handler.httpGet.port": acted_on("the port that the node asks, at 127.0.0.1 in the sandbox of the first rank"),
    "handler.httpGet.host": acted_on("the workload itself: localhost; others have a warning"),
    "handler.httpGet.scheme": acted_on("HTTPS: a connection is enough, with a warning"),
}
_PORTS: Table = {
    "container": acted_on(
        "a port of the job: `trainyard port-forward` reaches it, and a URL if exposedUrls has it, too"
    ),
    "serviceType": warned("no port of a node is opened: `trainyard port-forward` reaches the port"),
    "external": warned("no port of a node is opened: `trainyard port-forward` reaches the port"),
    "name": acted_on("the port's name, of a-z, 0-9 and dashes; others are named port-NUMBER"),
    "toolType": _RETURNED,
    "toolName": _RETURNED,
    "exclude": _EXCLUDE,
}
_URLS: Table = {
    "container": acted_on("a port of the job that the gateway serves; `url` in answers is its address"),
    "url": warned("the gateway gives each port its address, which answers have"),
    "authorizationType": acted_on("authenticatedUsers: all who may see the workload; others need their list, else 400"),
    "authorizedUsers": acted_on("names of people and of API keys who may open the URL"),
    "authorizedGroups": acted_on(
        "groups of the identity provider, whose members may open it; without one 400, beside authorizedUsers a warning"
    ),
    "name": acted_on("the port's name in its address, of a-z, 0-9 and dashes; others are named port-NUMBER"),
    "toolType": _RETURNED,
    "toolName": _RETURNED,
    "exclude": _EXCLUDE,
}

_SPEC: Table = {
    "command": acted_on("the program, split like a shell command; without an image, command or args is required"),
    "args": acted_on("arguments, split likewise; without a command those of the image's own"),
    "image": acted_on(IN_AN_IMAGE),
    "imagePullPolicy": acted_on("when a node asks the registry for the image"),
    "imagePullSecrets.name": acted_on(
        "a secret of the project, whose logins open the registries of the images; one that it lacks, or that no image "
        "needs, has a warning"
    ),
    "imagePullSecrets.userCredential": warned("user credentials are not supported: use a secret of the project"),
    "imagePullSecrets.exclude": _EXCLUDE,
    "workingDir": acted_on("working directory, if it is in a volume or jobs may read it; else it has a warning"),
    "createHomeDir": acted_on("each attempt has its own HOME, also without it"),
    "nodeType": acted_on("a required node label; without such a node the training waits, with a warning"),
    "nodePools": acted_on("node labels; a node must have one of them, or any with the pool default; order is ignored"),
    "tty": acted_on(
        "true: output and error output of the command are a terminal, and go to its log; refused where mpirun starts "
        "the ranks. `trainyard shell` opens one with an input"
    ),
    "stdin": acted_on(
        "true: standard input stays open and empty, so that a shell as the command waits; else it is at its end. "
        "`trainyard exec -i` starts another command with an input"
    ),
    "environmentVariables.name": acted_on("an environment variable; one that the platform sets has a warning"),
    "environmentVariables.value": acted_on("its value; masked where it looks like a secret"),
    "environmentVariables.secret.name": acted_on("a secret of the project with the value"),
    "environmentVariables.secret.key": acted_on("the key in that secret"),
    "environmentVariables.exclude": _EXCLUDE,
    "environmentVariables.description": _RETURNED,
    "annotations.name": _RETURNED,
    "annotations.value": _RETURNED,
    "annotations.exclude": _RETURNED,
    "labels.name": acted_on("a label of the job"),
    "labels.value": acted_on("its value"),
    "labels.exclude": _EXCLUDE,
    "terminateAfterPreemption": acted_on("true: a preempted training ends; else it is queued again"),
    "autoDeletionTimeAfterCompletionSeconds": acted_on("after it the training is listed only by the native API"),
    "backoffLimit": acted_on("retries after failures"),
    "priorityClass": acted_on("priority and preemptibility; unknown classes are refused with 400"),
    "preemptibility": acted_on("whether the training is preemptible"),
    "completions": acted_on("number of runs of the command, each with its JOB_COMPLETION_INDEX"),
    "parallelism": acted_on(
        "number of concurrent completions, up to 64, each with devices of its own: they are placed together, a failed "
        "one is started again alone, up to backoffLimit, and each takes every so many-th of the completions; "
        "with a part of a device they share it, with a warning"
    ),
    "category": warned("every workload is in the category Train"),
    **{f"{_PROBE}.{name}": rule for name, rule in _READINESS.items()},
    **{f"ports.{name}": rule for name, rule in _PORTS.items()},
    **{f"exposedUrls.{name}": rule for name, rule in _URLS.items()},
    "relatedUrls.url": _RETURNED,
    "relatedUrls.type": _RETURNED,
    "relatedUrls.name": _RETURNED,
    "relatedUrls.exclude": _RETURNED,
    "terminationGracePeriodSeconds": warned("set by the operator for all jobs (TRAINYARD_LEASE_KILL_GRACE_SECONDS)"),
    "restartPolicy": warned("failures are retried in a new attempt, up to backoffLimit"),
}
_COMPUTE: Table = {
    "gpuDevicesRequest": acted_on(
        "number of devices; 0 or omitted: a CPU slot; without such a node the training waits, with a warning"
    ),
    "gpuRequestType": acted_on("which field requests a part of a device: portion, memory or migProfile"),
    "gpuPortionRequest": acted_on("portion: the reserved share; not enforced"),
    "gpuPortionLimit": _NOT_ENFORCED,
    "gpuMemoryRequest": acted_on("memory: the reserved memory; not enforced"),
    "gpuMemoryLimit": _NOT_ENFORCED,
    "migProfile": acted_on(
        "migProfile: a MIG instance of this profile; without such a node the training waits, with a warning"
    ),
    "cpuCoreRequest": acted_on("reserved cores, rounded up to whole ones, with a warning"),
    "cpuCoreLimit": acted_on("the limit of processor time, on nodes that offer `limits`"),
    "cpuMemoryRequest": acted_on("reserved memory of the node; without such a node the training waits, with a warning"),
    "cpuMemoryLimit": acted_on(
        "the limit of memory, on nodes that offer `limits`; at it the training fails with HOST_OUT_OF_MEMORY"
    ),
    "largeShmRequest": warned("shared memory is always up to half of the node's memory"),
}
_STORAGE: Table = {
    "pvc.name": _NAME_OF_VOLUME,
    "pvc.existingPvc": acted_on("true: pvc://CLAIM; else a claim of the project is made at the workload's start"),
    "pvc.claimName": acted_on("the claim pvc://CLAIM; a new one without a name is called WORKLOAD-VOLUME-DIGEST"),
    "pvc.path": _MOUNT_PATH,
    "pvc.readOnly": acted_on(
        "false: the workload writes to the claim, on nodes with a sandbox, unless another volume is mounted in it, "
        "which has a warning. Without it an existing claim is read-only, and a new one writable"
    ),
    "pvc.ephemeral": acted_on(
        "true: a new claim is a directory of each node, empty at each start and deleted when the workload is stopped "
        "or ends; existing claims are never deleted"
    ),
    "pvc.claimInfo.size": acted_on(
        "what a new claim may hold while the workload writes to it, which fails above that with DISK_LIMIT_EXCEEDED; "
        "of existing and read-only claims it has a warning"
    ),
    "pvc.claimInfo.storageClass": warned("claims are directories of the operator's file system"),
    "pvc.claimInfo.accessModes.readWriteOnce": acted_on("the new claim is writable, on any number of nodes"),
    "pvc.claimInfo.accessModes.readOnlyMany": acted_on("the new claim is read-only, unless it is writable, too"),
    "pvc.claimInfo.accessModes.readWriteMany": acted_on("the new claim is writable"),
    "pvc.claimInfo.volumeMode": acted_on("Filesystem; Block is ignored, with a warning"),
    "pvc.claimInfo.addedAttrValues.key": warned("claims are directories of the operator's file system"),
    "pvc.claimInfo.addedAttrValues.value": warned("claims are directories of the operator's file system"),
    "pvc.dataSharing": warned("sharing of claims is configured by the operator"),
    "pvc.exclude": _EXCLUDE,
    "git.name": _NAME_OF_VOLUME,
    "git.repository": acted_on(
        "https:// with a commit in revision, and workingDir in path or not set: nodes clone it as the job's code, "
        "where commands start without workingDir; else the directory git/HOST/OWNER/NAME below a storage root"
    ),
    "git.branch": acted_on("revision decides; without a commit there it has a warning"),
    "git.revision": acted_on("the commit, by its 40 digits; anything else has a warning"),
    "git.path": _MOUNT_PATH,
    "git.passwordSecret": _OPENS,
    "git.secretKeyOfUser": acted_on("of a repository that is cloned, username by default; else it has a warning"),
    "git.secretKeyOfPassword": acted_on("of a repository that is cloned, password by default; else it has a warning"),
    "git.secretRef.name": _OPENS,
    "git.secretRef.authenticationMethod": acted_on("password; ssh-key is refused with 400"),
    "git.secretRef.secretKeyOfUser": acted_on("as secretKeyOfUser"),
    "git.secretRef.secretKeyOfPassword": acted_on("as secretKeyOfPassword"),
    "git.exclude": _EXCLUDE,
    "hostPath.name": _NAME_OF_VOLUME,
    "hostPath.path": acted_on("a directory of the node that jobs may read; another one is refused"),
    "hostPath.readOnly": _READ_ONLY,
    "hostPath.mountPath": _MOUNT_PATH,
    "hostPath.mountPropagation": warned("later mounts of the node are not propagated"),
    "hostPath.exclude": _EXCLUDE,
    "nfs.name": _NAME_OF_VOLUME,
    "nfs.server": acted_on("nfs/SERVER/PATH below a storage root, mounted by the operator"),
    "nfs.path": acted_on("nfs/SERVER/PATH below a storage root, mounted by the operator"),
    "nfs.readOnly": _READ_ONLY,
    "nfs.mountPath": _MOUNT_PATH,
    "nfs.exclude": _EXCLUDE,
    "s3.name": _NAME_OF_VOLUME,
    "s3.bucket": acted_on("with accessKeySecret or url the bucket; else the directory s3/BUCKET below a storage root"),
    "s3.path": _MOUNT_PATH,
    "s3.url": acted_on("the service, https://HOST; without it, and with accessKeySecret, that of the operator"),
    "s3.accessKeySecret": acted_on(
        "a secret of the project that opens the bucket; where the operator does not provide it, s3/BUCKET below a root "
        "is read, with a warning"
    ),
    "s3.secretKeyOfAccessKeyId": acted_on("the key of the ID in the secret; default AccessKeyId"),
    "s3.secretKeyOfSecretKey": acted_on("the key of the secret access key in the secret; default SecretKey"),
    "s3.exclude": _EXCLUDE,
    "secretVolume.name": _NAME_OF_VOLUME,
    "secretVolume.secret": acted_on(f"a secret of the project, with each key as a file; {_OF_THE_OPERATOR}"),
    "secretVolume.mountPath": acted_on(_FILES_PATH),
    "secretVolume.defaultMode": _FILES_MODE,
    "secretVolume.exclude": _EXCLUDE,
    "configMapVolume.name": _NAME_OF_VOLUME,
    "configMapVolume.configMap": acted_on(f"as a secret: with each key as a file; {_OF_THE_OPERATOR}"),
    "configMapVolume.mountPath": acted_on(_FILES_PATH),
    "configMapVolume.subPath": acted_on("one key, which is the file mountPath"),
    "configMapVolume.defaultMode": _FILES_MODE,
    "configMapVolume.exclude": _EXCLUDE,
    "emptyDirVolume.name": _NAME_OF_VOLUME,
    "emptyDirVolume.path": acted_on("an empty directory of the attempt, on nodes with a sandbox"),
    "emptyDirVolume.medium": acted_on("Memory: the directory is in memory"),
    "emptyDirVolume.sizeLimit": acted_on(
        "the size of a directory in memory; above it on disk the workload fails with DISK_LIMIT_EXCEEDED"
    ),
    "emptyDirVolume.exclude": _EXCLUDE,
}
_SECURITY: Table = {
    "uidGidSource": acted_on("custom: runAsUid and runAsGid; fromTheImage: the image's user; others have a warning"),
    "runAsUid": acted_on("the user ID of the processes in their sandbox, on nodes with one; 0 is refused with 400"),
    "runAsGid": acted_on("their group ID; without it that of the user in the image, else equal to runAsUid"),
    "runAsNonRoot": acted_on("no job runs as root, also without it"),
    "readOnlyRootFilesystem": acted_on(
        "true: the image's files can't be written; without an image no job can write to the root, and false has a "
        "warning"
    ),
    "supplementalGroups": warned(
        "processes have one group, runAsGid: what is mounted is theirs, whatever its group is"
    ),
    "capabilities": warned("no job has capabilities"),
    "seccompProfileType": acted_on("RuntimeDefault; others have a warning, since all jobs' system calls are filtered"),
    "allowPrivilegeEscalation": acted_on("false; true is refused with 400"),
    "hostIpc": acted_on("false; true has a warning"),
    "hostNetwork": acted_on("false; true has a warning"),
}
# Objects and lists without an effect; one warning for each.
_IGNORED: dict[str, str] = {
    "spec.podAffinity": "affinity to other pods is not supported: nodes are selected by labels and free devices",
    "spec.nodeAffinityRequired": "node labels have no values: use nodeType and nodePools",
    "spec.tolerations": "nodes have no taints",
    "spec.environmentVariables.configMap": "config maps are not supported: set the value",
    "spec.environmentVariables.podFieldRef": "there are no pods: use TRAINYARD_JOB_ID, RANK and others",
    "spec.environmentVariables.userCredential": "user credentials are not supported: use a secret of the project",
    "spec.compute.extendedResources": "extended resources are not supported: use a node label in nodePools",
    "spec.storage.dataVolume": "data volumes are not supported: use a claim, a directory or a URI that jobs may read",
}
_DISTRIBUTED: Table = {
    "spec.distributedFramework": acted_on(
        "PyTorch; MPI: mpirun of the launcher, masterSpec or else spec, starts the ranks on numWorkers nodes; others "
        "are refused with 400"
    ),
    "spec.numWorkers": acted_on(
        "number of pods besides the master, up to 63 where the master differs; with MPI the number of nodes"
    ),
    "spec.minReplicas": warned("the number of nodes is fixed: numWorkers and the master"),
    "spec.maxReplicas": warned("the number of nodes is fixed: numWorkers and the master"),
    "spec.cleanPodPolicy": acted_on(
        "where the master differs, its end is the workload's, and the workers are stopped; None: it waits for them. A "
        "workload of equal pods ends with the last of them, with a warning unless this is None"
    ),
    "spec.slotsPerWorker": acted_on(
        "MPI: ranks of each worker, 1 without it or -np of mpirun, which must agree; else it has a warning"
    ),
    "spec.sshAuthMountPath": warned("ranks are started without SSH"),
    "spec.mpiLauncherCreationPolicy": warned("no pod is a launcher: mpirun starts when all nodes are ready"),
    "masterSpecSameAsWorker": acted_on("true is the default; refused with 400 together with masterSpec"),
}
_REQUEST: Table = {
    "name": acted_on("the name of the workload"),
    "useGivenNameAsPrefix": acted_on("true: a random suffix is appended to the name"),
    "projectId": acted_on("the project, by number or name; 404 if the key has no access to it"),
    "clusterId": acted_on("stored and returned: there is one cluster"),
    "templateId": warned("templates are not supported"),
}
_RULES: Table = {
    **_REQUEST,
    **_DISTRIBUTED,
    **{f"spec.{path}": rule for path, rule in _SPEC.items()},
    **{f"spec.compute.{path}": rule for path, rule in _COMPUTE.items()},
    **{f"spec.storage.{path}": rule for path, rule in _STORAGE.items()},
    **{f"spec.security.{path}": rule for path, rule in _SECURITY.items()},
}
_OF_THE_MASTER = (
    "only command, args, image, environmentVariables, compute, ports, exposedUrls and probes of the master can differ"
)
# Values that match the behaviour, and need no warning.
_NO_REQUEST: tuple[tuple[str, Any], ...] = (("mountPropagation", "None"), ("exclude", False), ("userCredential", False))


def _rule_of(path: str) -> FieldRule:
    """Raises KeyError for a field without a rule."""
    rule = _rule_without_exclude(path)
    return _EXCLUDE if path.endswith(".exclude") and rule.verdict is FieldVerdict.WARNED else rule


def _rule_without_exclude(path: str) -> FieldRule:
    of_spec = f"spec.{path.removeprefix('masterSpec.')}" if path.startswith("masterSpec.") else path
    if of_spec != path and path.split(".")[1] not in _MASTER_FIELDS:
        return warned(_OF_THE_MASTER)
    whole = _ignored_part(of_spec)
    return warned(_IGNORED[whole]) if whole else _RULES[of_spec]


def _ignored_part(path: str) -> str | None:
    return next((whole for whole in _IGNORED if f"{path}.".startswith(f"{whole}.")), None)


FIELDS: Table = {
    path: _rule_of(path) for schema in (TrainingSchema, DistributedSchema) for path in field_paths(schema())
}


def without_effect(training: Mapping[str, Any]) -> list[str]:
    """A warning, ``field: reason``, for each field of the training without an effect."""
    return list(dict.fromkeys(_shortened(line) for line in warnings_of(_requested(training), FIELDS)))


def _shortened(line: str) -> str:
    path, _, reason = line.partition(": ")
    if path.startswith("masterSpec."):
        part = path.split(".")[1]
        if part not in _MASTER_FIELDS:
            return warning(f"masterSpec.{part}", reason)
        whole = _ignored_part(f"spec.{path.removeprefix('masterSpec.')}")
        return warning(f"masterSpec.{whole.removeprefix('spec.')}", reason) if whole else line
    return warning(_ignored_part(path) or path, reason)


def _requested(part: Mapping[str, Any]) -> dict[str, Any]:
    """Without excluded items, and without values that match the behaviour."""
    return {name: _requested_value(value) for name, value in part.items() if (name, value) not in _NO_REQUEST}


def _requested_value(value: object) -> object:
    if isinstance(value, Mapping):
        return _requested(value)
    if isinstance(value, list):
        return [_requested_value(each) for each in value if not (isinstance(each, Mapping) and each.get("exclude"))]
    return value
