"""Submitting in Chromium: form and document follow each other, what is wrong stands at its field, a job is made."""

import json
from typing import Any

from playwright.sync_api import Page, expect

from tests.web.site import Site

SCRIPT = "training_config.framework.custom_script_path"


def field(page: Page, path: str) -> Any:
    return page.locator(f'#job-form [data-path="{path}"]')


def document(page: Page) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(page.input_value("#document"))
    return found


def test_a_job_is_submitted_by_filling_in_the_form(page: Page, site: Site):
    page.goto("/ui/submit")
    expect(page.locator("#check")).to_contain_text("Not ready yet")
    field(page, "name").fill("by form")
    field(page, "training_config.framework.type").select_option("CUSTOM")
    field(page, SCRIPT).fill("examples/cluster/count.py")
    field(page, "training_config.hyperparameters").fill("steps=900")
    page.get_by_label("Training data").fill("examples/cluster/data.jsonl")
    field(page, "resource_config.gpu_type").fill("a100")
    expect(page.locator("#check")).to_contain_text("Place in the queue")

    assert document(page)["training_config"]["framework"]["custom_script_path"] == "examples/cluster/count.py"
    assert document(page)["training_config"]["hyperparameters"] == {"steps": "900"}
    assert document(page)["data_config"]["sources"] == [{"path": "examples/cluster/data.jsonl"}]
    page.get_by_role("button", name="Submit job").click()

    page.wait_for_url("**/ui/jobs/job-*")
    expect(page.locator("#notices")).to_contain_text("by form is accepted")
    expect(page.locator("h1")).to_contain_text("by form")
    site.ask("POST", f"/v1/jobs/{page.url.rpartition('/')[2]}/cancel", {})


def test_the_fields_follow_the_document_and_the_document_the_fields(page: Page):
    page.goto("/ui/submit")
    made = document(page) | {"name": "typed", "labels": {"team": "red"}}
    made["training_config"]["hyperparameters"] = {"lora_r": 32, "unknown_one": 1}
    made["data_config"]["sources"] = [{"path": "a", "columns": ["text"]}, {"path": "v", "split": "validation"}]
    page.fill("#document", json.dumps(made))

    expect(field(page, "name")).to_have_value("typed")
    expect(field(page, "labels")).to_have_value("team=red")
    expect(field(page, "training_config.hyperparameters.lora_r")).to_have_value("32")
    expect(page.get_by_label("Validation data")).to_have_value("v")
    page.get_by_label("Training data").fill("a\nb")
    field(page, "labels").fill("")
    field(page, "resource_config.gpu_count").fill("2")

    after = document(page)
    # What the form has no field for stays as it was.
    assert after["data_config"]["sources"] == [
        {"path": "a", "columns": ["text"]},
        {"path": "b"},
        {"path": "v", "split": "validation"},
    ]
    assert after["training_config"]["hyperparameters"]["unknown_one"] == 1
    assert (after["resource_config"]["gpu_count"], "labels" in after) == (2, False)


def test_what_is_wrong_stands_at_its_field(page: Page, violations: Any):
    page.goto("/ui/submit")
    field(page, "resource_config.gpu_count").fill("many")
    expect(field(page, "resource_config.gpu_count")).to_have_attribute("aria-invalid", "true")
    expect(page.locator("#job-form .wrong").first).to_contain_text("must be")
    assert violations(page) == []
    field(page, "resource_config.gpu_count").fill("1")
    expect(field(page, "resource_config.gpu_count")).not_to_have_attribute("aria-invalid", "true")
    page.fill("#document", '{"name": ')
    expect(page.locator("#check")).to_contain_text("the document is not JSON")
    expect(field(page, "name")).to_be_disabled()


def test_hyperparameters_are_those_of_the_method(page: Page):
    page.goto("/ui/submit")
    expect(field(page, "training_config.hyperparameters.lora_r")).to_be_visible()
    field(page, "training_config.training_type").select_option("DPO")
    expect(field(page, "training_config.hyperparameters.beta")).to_be_visible()
    field(page, "training_config.framework.type").select_option("MEGATRON")
    expect(page.locator("#hyperparameters")).to_contain_text("DPO does not run on MEGATRON")


def test_markup_in_a_document_stays_text(page: Page):
    page.goto("/ui/submit")
    made = document(page) | {"name": "<img src=x onerror=document.title='hacked'>"}
    page.fill("#document", json.dumps(made))
    expect(page.locator("#job-form .wrong").first).to_contain_text("must be 1 to 128")
    made["training_config"]["training_type"] = "<b>bold</b>"
    page.fill("#document", json.dumps(made))
    expect(field(page, "training_config.training_type")).to_have_value("<b>bold</b>")

    assert page.locator("main img, main b").count() == 0
    assert "hacked" not in page.title()
