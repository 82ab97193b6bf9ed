"""Schemas of OME's manifests."""

import re
from collections.abc import Mapping
from typing import Any

from marshmallow import ValidationError, fields, validate

from app.compat import quantities
from app.domain.spec.hyperparameters.parsing import CUSTOM
from app.domain.sweeps.spec import MAX_TRIALS
from app.schemas.documents import DocumentSchema
from app.schemas.spec.training_config import FRAMEWORKS, PARAMETER, TRAINING_TYPES
from app.schemas.strict_fields import (
    Choice,
    Flag,
    FreeObject,
    Matching,
    ScalarMap,
    SectionField,
    Text,
    TextMap,
    Whole,
    says,
)

DNS_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
_NAME_PREFIX = re.compile(r"[a-z0-9][a-z0-9.-]{0,246}")
_KEY = re.compile(r"(?:[A-Za-z0-9.-]{1,253}/)?[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_VARIABLE = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]{0,127}")
_SECRET = says("Secret of the project with the credentials for the URI")
_NOT_ACTED_ON = says("Accepted but ignored")
PROCESSES = ("auto", "cpu", "gpu")


def _document(name: str, described: Mapping[str, Any]) -> type[DocumentSchema]:
    schema: Any = DocumentSchema.from_dict(dict(described), name=f"{name}Schema")
    return schema  # type: ignore[no-any-return]


class Processes(fields.Field[str]):
    """`auto`, `cpu`, `gpu` or a number, which may be a string."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(metadata={"type": ["string", "integer"], "maxLength": 8}, **kwargs)

    def _deserialize(self, value: object, *_: Any, **__: Any) -> str:
        text = str(value)
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise ValidationError("must be auto, cpu, gpu or a number")
        if text not in PROCESSES and not (text.isdecimal() and len(text) < 9 and 1 <= int(text) <= 1024):
            raise ValidationError("must be auto, cpu, gpu or a number from 1 to 1024")
        return text


class QuantitiesField(fields.Dict):
    """Resource → quantity, which may be a number."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(metadata={"additionalProperties": {"type": ["string", "number"]}}, **kwargs)

    def _deserialize(self, value: object, *_: Any, **__: Any) -> dict[str, str]:
        if not isinstance(value, dict) or len(value) > 32:
            raise ValidationError("must be an object with at most 32 resources")
        found = {str(name): str(amount) for name, amount in value.items()}
        wrong = next((name for name, amount in found.items() if not quantities.FORM.fullmatch(amount)), None)
        if wrong is not None:
            raise ValidationError({wrong[:64]: [quantities.RULE]})
        return found


class ModelField(fields.Field[str]):
    """The name of a base model, or an object with its name or URI."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(metadata={"type": ["string", "object"], "maxLength": 1024}, **kwargs)

    def _deserialize(self, value: object, *_: Any, **__: Any) -> str:
        if isinstance(value, dict):
            if unknown := sorted(value.keys() - {"name", "storageUri"}):
                raise ValidationError({str(unknown[0])[:64]: ["is unknown; set name or storageUri"]})
            value = value.get("storageUri") or value.get("name")
        if not isinstance(value, str) or not 1 <= len(value) <= 1024:
            raise ValidationError("must be the name of a base model, or an object with name or storageUri")
        return value


def _arguments() -> fields.List[str]:
    return fields.List(Text(longest=32768), validate=validate.Length(max=1000))


Annotations = TextMap(keys=_KEY, rule="must be a Kubernetes label key", longest=262_144)
Labels = TextMap(keys=_KEY, rule="must be a Kubernetes label key", longest=63)
_Storage = _document(
    "StorageSpec",
    {
        "storageUri": Text(longest=1024, **says("oci://, pvc://, http(s):// or any other location of a job")),
        "path": Text(longest=1024, **_NOT_ACTED_ON),
        "schemaPath": Text(longest=1024, **_NOT_ACTED_ON),
        "parameters": FreeObject(
            **says("region, endpoint_url and namespace of the service; of datasets also format and compression")
        ),
        "storageKey": Text(longest=253, **_SECRET),
        "key": Text(longest=253, **_SECRET),
        "nodeSelector": FreeObject(**_NOT_ACTED_ON),
        "nodeAffinity": FreeObject(**_NOT_ACTED_ON),
    },
)
_Variable = _document(
    "EnvVar",
    {
        "name": Matching(_VARIABLE, "must be the name of a variable", required=True),
        "value": Text(longest=4096, load_default=""),
        "valueFrom": FreeObject(**_NOT_ACTED_ON),
    },
)
_Resources = _document(
    "Resources", {"requests": QuantitiesField(), "limits": QuantitiesField(), "claims": fields.List(FreeObject())}
)
TrainerSchema = _document(
    "Trainer",
    {
        "image": Text(longest=512, **says("The image of the command, where the operator has named registries")),
        "command": _arguments(),
        "args": _arguments(),
        "env": fields.List(SectionField(_Variable), validate=validate.Length(max=100)),
        "numNodes": Whole(1, 65536),
        "numProcPerNode": Processes(),
        "resourcesPerNode": SectionField(_Resources),
        "codeUri": Text(longest=1024, **says("Extension: a directory of code, the working directory of the command")),
    },
)
_Tuning = _document(
    "HyperParameterTuningConfig",
    {
        "method": Choice(("grid", "random", "bayes"), required=True),
        "metric": SectionField(
            _document(
                "TuningMetric",
                {
                    "name": Text(longest=128, shortest=1, required=True),
                    "goal": Choice(("minimize", "maximize"), required=True),
                },
            ),
            required=True,
        ),
        "parameters": FreeObject(load_default=dict),
        "maxTrials": Whole(1, MAX_TRIALS),
    },
)
_RuntimeRef = _document(
    "RuntimeRef",
    {
        "name": Matching(DNS_NAME, "must be a Kubernetes name", required=True),
        "kind": Choice(("ClusterTrainingRuntime", "TrainingRuntime"), load_default="ClusterTrainingRuntime"),
        "apiGroup": Choice(("ome.io",), load_default="ome.io"),
    },
)
_ModelConfig = _document("ModelConfig", {"inputModel": ModelField(), "outputModel": SectionField(_Storage)})
JobSpecSchema = _document(
    "TrainingJobSpec",
    {
        "runtimeRef": SectionField(_RuntimeRef, required=True),
        "trainer": SectionField(TrainerSchema, required=True),
        "modelConfig": SectionField(_ModelConfig, load_default=dict),
        "datasets": SectionField(_Storage, load_default=dict),
        "hyperParameterTuningConfig": SectionField(_Tuning, **says("A sweep, whose trials are jobs")),
        "suspend": Flag(load_default=False),
        "labels": Labels,
        "annotations": Annotations,
        "compartmentID": Text(longest=253, **_NOT_ACTED_ON),
    },
)
_Elastic = FreeObject(**_NOT_ACTED_ON)
_Torch = _document("TorchPolicy", {"numProcPerNode": Processes(), "elasticPolicy": _Elastic})
_Mpi = _document(
    "MpiPolicy",
    {
        "numProcPerNode": Processes(),
        "mpiImplementation": Choice(("OpenMPI", "Intel", "MPICH"), **says("Only OpenMPI")),
        "sshAuthMountPath": Text(longest=1024, **_NOT_ACTED_ON),
        "runLauncherAsNode": Flag(**_NOT_ACTED_ON),
    },
)
_Policy = _document("MlPolicy", {"numNodes": Whole(1, 65536), "torch": SectionField(_Torch), "mpi": SectionField(_Mpi)})
_BuiltIn = _document(
    "BuiltInTrainer",
    {
        "framework": Choice(tuple(each for each in FRAMEWORKS if each != CUSTOM), load_default="HF_TRAINER"),
        "trainingType": Choice(TRAINING_TYPES, load_default="SFT"),
        "hyperparameters": ScalarMap(keys=PARAMETER, rule="must be the name of a hyperparameter", load_default=dict),
        "maxSeqLength": Whole(1, 2**24),
        "batchSize": Whole(1, 65536),
    },
)
RuntimeSpecSchema = _document(
    "TrainingRuntimeSpec",
    {
        "trainer": SectionField(
            _BuiltIn, **says("Extension: training method of jobs without a command; default SFT with HF_TRAINER")
        ),
        "mlPolicy": SectionField(_Policy, load_default=dict),
        "podGroupPolicy": FreeObject(**_NOT_ACTED_ON),
        "template": FreeObject(**says("A JobSet; its container trainer gives defaults for jobs")),
        "labels": Labels,
        "annotations": Annotations,
        "compartmentID": Text(longest=253, **_NOT_ACTED_ON),
    },
)
BaseModelSpecSchema = _document(
    "BaseModelSpec",
    {
        "storage": SectionField(_Storage, required=True),
        "disabled": Flag(load_default=False, **says("true: jobs can't use it")),
        "displayName": Text(longest=253),
        "vendor": Text(longest=253),
        "version": Text(longest=253),
        "modelType": Text(longest=253),
        "modelArchitecture": Text(longest=253),
        "modelParameterSize": Text(longest=64),
        "modelFormat": FreeObject(),
        "modelFramework": FreeObject(),
        "modelCapabilities": fields.List(Text(longest=64), validate=validate.Length(max=64)),
        "modelConfiguration": FreeObject(),
        "maxTokens": Whole(1),
        "quantization": Text(longest=64),
        "servingMode": fields.List(Text(longest=64), validate=validate.Length(max=16)),
        "additionalMetadata": FreeObject(),
        "compartmentID": Text(longest=253),
    },
)
MetadataSchema = _document(
    "ObjectMeta",
    {
        "name": Matching(DNS_NAME, "must be a Kubernetes name: lower-case letters, digits, - and ."),
        "namespace": Text(longest=63),
        "labels": Labels,
        "annotations": Annotations,
        "resourceVersion": Text(longest=32),
        "generateName": Matching(
            _NAME_PREFIX, "must be a prefix of a Kubernetes name", **says("5 characters are appended to it")
        ),
        # Set by servers; ignored.
        "uid": Text(longest=64),
        "generation": Whole(0),
        "creationTimestamp": Text(longest=64),
        "deletionTimestamp": Text(longest=64),
        "managedFields": fields.List(FreeObject()),
        "finalizers": fields.List(Text(longest=253)),
        "ownerReferences": fields.List(FreeObject()),
        "selfLink": Text(longest=1024),
    },
)
_HEAD: dict[str, Any] = {
    "apiVersion": Text(longest=64, required=True),
    "kind": Text(longest=64, required=True),
    "metadata": SectionField(MetadataSchema, required=True),
    "status": FreeObject(**says("Set by servers; ignored")),
}
TrainingJobSchema = _document("TrainingJob", {**_HEAD, "spec": SectionField(JobSpecSchema, required=True)})
RuntimeSchema = _document("TrainingRuntime", {**_HEAD, "spec": SectionField(RuntimeSpecSchema, required=True)})
BaseModelSchema = _document("BaseModel", {**_HEAD, "spec": SectionField(BaseModelSpecSchema, required=True)})


class ChangeSchema(DocumentSchema):
    """A patch, in the form of its Content-Type."""

    metadata = FreeObject()
    spec = FreeObject()
