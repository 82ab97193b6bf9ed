"""Submitting in Chromium: form and document follow each other, what is wrong stands at its field, a job is made."""

import json
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.web.site import DOCUMENT, Site

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


def test_what_was_typed_outlives_a_reload_another_page_and_going_back(page: Page):
    page.goto("/ui/submit")
    typed = document(page) | {"name": "draft", "output_config": {"hub_token": "hf_very_secret"}}
    typed["training_config"]["environment"] = {"API_KEY": "very_secret", "MODE": "fast"}
    page.fill("#document", json.dumps(typed))
    field(page, "name").fill("a draft")
    page.reload()

    expect(field(page, "name")).to_have_value("a draft")
    expect(page.locator("#draft")).to_contain_text("write them anew")
    assert document(page)["output_config"] == {"hub_token": "***"}
    assert document(page)["training_config"]["environment"] == {"API_KEY": "***", "MODE": "fast"}
    assert "very_secret" not in page.evaluate("JSON.stringify({...sessionStorage})")
    page.goto("/ui/nodes")
    page.go_back()
    expect(field(page, "name")).to_have_value("a draft")

    page.get_by_role("button", name="Start anew").click()
    expect(field(page, "name")).to_have_value("my-job")
    page.get_by_role("button", name="Take it back").click()
    expect(field(page, "name")).to_have_value("a draft")
    page.get_by_role("button", name="Start anew").click()
    page.reload()
    expect(field(page, "name")).to_have_value("my-job")
    expect(page.locator("#draft")).to_be_hidden()


def test_a_document_that_was_sent_is_there_for_those_who_go_back_alone(page: Page, site: Site):
    page.goto("/ui/submit")
    page.fill("#document", json.dumps({**DOCUMENT, "name": "sent"}))
    page.get_by_role("button", name="Submit job").click()
    page.wait_for_url("**/ui/jobs/job-*")

    page.go_back()
    expect(field(page, "name")).to_have_value("sent")
    page.goto("/ui/submit")
    expect(field(page, "name")).to_have_value("my-job")


def test_a_sign_in_that_ends_leaves_the_text(context: BrowserContext, site: Site):
    key = site.project("ends-while-typing")
    page = context.new_page()
    site.sign_in(page, key)
    page.goto("/ui/submit")
    field(page, "name").fill("kept")
    rows = site.ask("GET", "/v1/keys?page_size=100")["keys"]
    site.ask("DELETE", f"/v1/keys/{next(row['key_id'] for row in rows if row['project'] == 'ends-while-typing')}")
    field(page, "name").fill("kept here")

    expect(page.locator("#signed-out")).to_contain_text("Your sign-in has ended")
    page.get_by_role("button", name="Submit job").click()
    expect(page.locator("#signed-out")).to_have_count(1)
    assert document(page)["name"] == "kept here"
    page.get_by_role("link", name="Sign in again").click()
    expect(page).to_have_url(f"{site.url}/ui/login?next=%2Fui%2Fsubmit")


def test_a_script_of_ones_own_needs_no_method_and_no_model(page: Page):
    page.goto("/ui/submit")
    field(page, "training_config.base_model.model_id").fill("org/model")
    field(page, "training_config.framework.type").select_option("CUSTOM")

    expect(field(page, "training_config.training_type")).to_be_hidden()
    expect(field(page, "training_config.base_model.model_id")).to_be_hidden()
    assert {"training_type", "base_model"}.isdisjoint(document(page)["training_config"])
    field(page, "training_config.framework.type").select_option("HF_TRAINER")
    expect(field(page, "training_config.base_model.model_id")).to_have_value("org/model")
    assert document(page)["training_config"]["training_type"] == "LORA"


def test_lines_that_are_no_pairs_are_told_and_not_left_out(page: Page, site: Site):
    page.goto("/ui/submit")
    page.fill("#document", json.dumps({**DOCUMENT, "name": "labelled"}))
    field(page, "labels").fill("team=red\nnokey")
    page.get_by_role("button", name="Submit job").click()

    expect(page.locator("#field-labels-wrong")).to_contain_text("write key=value instead of “nokey”")
    expect(field(page, "labels")).to_be_focused()
    field(page, "labels").fill("team=red\nteam=blue")
    field(page, "name").focus()
    expect(page.locator("#field-labels-wrong")).to_contain_text("team stands here twice")
    assert page.url == f"{site.url}/ui/submit"


@pytest.mark.parametrize("act", ["leaves the field", "submits"])
def test_nothing_is_red_before_a_person_came_to_it_or_submits(page: Page, act: str):
    page.goto("/ui/submit")
    expect(page.locator("#check")).to_contain_text("Not ready yet")
    expect(page.locator("#job-form [aria-invalid]")).to_have_count(0)
    model = field(page, "training_config.base_model.model_id")

    if act == "leaves the field":
        model.focus()
        model.blur()
    else:
        page.get_by_role("button", name="Submit job").click()

    expect(model).to_have_attribute("aria-invalid", "true")
