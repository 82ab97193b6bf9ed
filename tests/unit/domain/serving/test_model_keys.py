from app.domain.serving.model_keys import LONGEST, model_key
from app.domain.spec.inference import ModelReference
from app.domain.spec.model import BaseModel


def test_what_was_made_here_is_named_by_its_checkpoint_or_its_job() -> None:
    base = BaseModel(model_id="org/base")
    assert model_key(base, ModelReference(job_id="job-1", checkpoint_id="ckpt-2", adapter=True)) == "ckpt-2"
    assert model_key(base, ModelReference(job_id="job-1")) == "job-1"


def test_a_location_is_named_with_its_revision() -> None:
    assert model_key(BaseModel(model_id="org/base"), ModelReference()) == "org/base"
    assert model_key(BaseModel(model_id="org/base", revision="v2"), ModelReference()) == "org/base@v2"


def test_long_locations_differ_and_fit_the_column() -> None:
    keys = [model_key(BaseModel(model_id="/srv/" + "m" * 300 + end), ModelReference()) for end in "ab"]
    assert len(set(keys)) == 2
    assert all(len(key) <= LONGEST for key in keys)
