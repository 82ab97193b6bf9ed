"""Machine-readable tables: training types with their hyperparameters, and error types."""

from flask import Blueprint

from app.domain.errors import ERROR_TYPES
from app.domain.lifecycle.retry_policy import describe, may_retry
from app.domain.spec.catalog import training_types
from app.domain.spec.hyperparameters.parsing import CUSTOM
from app.http.envelope import Reply
from app.http.operation import operation
from app.schemas.spec.training_config import TRAINING_TYPES
from app.schemas.tables import ErrorTypesSchema, TrainingTypesSchema
from app.security.permissions import Permission

blueprint = Blueprint("tables", __name__)
_TRAINING_TYPES, _ERROR_TYPES = TrainingTypesSchema(), ErrorTypesSchema()


@blueprint.get("/training-types")
@operation("List training types with their hyperparameters", permission=Permission.VIEW, answer=TrainingTypesSchema)
def list_training_types() -> Reply:
    return Reply(_TRAINING_TYPES.dump({"training_types": list(training_types((*TRAINING_TYPES, CUSTOM)))}))


@blueprint.get("/error-types")
@operation("List the error types of failed jobs", permission=Permission.VIEW, answer=ErrorTypesSchema)
def list_error_types() -> Reply:
    types = [
        {
            "name": name,
            "meaning": kind.meaning,
            "what_to_do": kind.what_to_do,
            "retried": may_retry(name),
            "recovery": describe(name).replace("`", ""),
        }
        for name, kind in ERROR_TYPES.items()
    ]
    return Reply(_ERROR_TYPES.dump({"error_types": types}))
