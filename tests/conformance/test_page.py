"""docs/how-to/adding-a-trainer.md shows the example that the other tests of this folder train."""

from app.domain.spec.job_spec import from_document
from app.domain.spec.locations.paths import ReadingRules
from app.schemas.jobs import SubmitJobSchema
from tests.builders.example_jobs import ROOT, SOMEWHERE, filled_in, pair_of
from tests.conformance import example_trainer

RULES = ReadingRules(roots=("/srv",))


def test_page_shows_the_example_as_it_is():
    page = (ROOT / "docs" / "how-to" / "adding-a-trainer.md").read_text(encoding="utf-8")
    document = filled_in(example_trainer.DOCUMENT, SOMEWHERE)

    assert example_trainer.CODE.read_text(encoding="utf-8") in page
    assert example_trainer.DOCUMENT.read_text(encoding="utf-8") in page
    assert example_trainer.LINE.rpartition(".")[2] in page
    assert pair_of(document) == example_trainer.PAIR
    document["training_config"]["training_type"] = "SFT"  # whose hyperparameters it has
    from_document(SubmitJobSchema().load(document), RULES)
