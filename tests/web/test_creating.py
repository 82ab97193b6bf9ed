"""Creating sweeps and evaluations in Chromium: rows of a form follow the document, and what is wrong stands at them."""

import json
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.web.content import Content
from tests.web.site import Site

FRAMEWORK = "job.training_config.framework"


def field(page: Page, path: str) -> Any:
    return page.locator(f'#job-form [data-path="{path}"]')


def document(page: Page) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(page.input_value("#document"))
    return found


def add_parameter(page: Page, name: str) -> None:
    page.get_by_label("Another parameter").fill(name)
    page.get_by_role("button", name="Add parameter").click()
    expect(field(page, f"parameters.{name}.type")).to_be_focused()


def test_a_sweep_is_created_by_filling_in_the_form(page: Page, site: Site):
    page.goto("/ui/sweeps")
    page.get_by_role("link", name="New sweep").click()
    field(page, "name").fill("by form")
    field(page, f"{FRAMEWORK}.type").select_option("CUSTOM")
    expect(page.locator("#parameters")).to_have_attribute("data-made", "CUSTOM CUSTOM learning_rate")
    page.get_by_text("More of the job").click()
    field(page, f"{FRAMEWORK}.custom_script_path").fill("examples/cluster/count.py")
    page.get_by_label("Training data").fill("examples/cluster/data.jsonl")
    page.get_by_role("button", name="Remove learning_rate").click()
    expect(page.get_by_label("Another parameter")).to_be_visible()
    expect(page.locator("#parameters .row")).to_have_count(0)
    add_parameter(page, "steps")
    field(page, "parameters.steps.type").select_option("int")
    field(page, "parameters.steps.values").fill("900, 901")
    field(page, "objective.metric").fill("loss")
    field(page, "method.name").select_option("random")
    field(page, "budget.max_trials").fill("2")
    field(page, "budget.parallel_trials").fill("free")

    expect(page.locator("#check")).to_contain_text("It can be created")
    expect(page.locator("#check")).to_contain_text("2, free at a time, by random")
    expect(page.locator("#check ol li")).to_have_count(2)
    made = document(page)
    assert made["parameters"] == {"steps": {"type": "int", "values": [900, 901]}}
    assert made["budget"] == {"max_trials": 2, "parallel_trials": "free"}
    page.get_by_role("button", name="Create sweep").click()

    page.wait_for_url("**/ui/sweeps/sweep-*")
    expect(page.locator("#notices")).to_contain_text("by form makes its first trial")


def test_rows_follow_the_document_and_errors_stand_at_them(page: Page):
    page.goto("/ui/sweeps/new")
    made = document(page)
    made["parameters"] = {
        "learning_rate": {"type": "double", "min": 0.01, "max": 0.001},
        "data_config.batch_size": {"type": "int", "values": [4, 8]},
    }
    page.fill("#document", json.dumps(made))

    expect(field(page, "parameters.data_config.batch_size.values")).to_have_value("4, 8")
    expect(field(page, "parameters.learning_rate.min")).to_have_attribute("aria-invalid", "true")
    field(page, "parameters.learning_rate.max").fill("0.1")
    expect(field(page, "parameters.learning_rate.min")).not_to_have_attribute("aria-invalid", "true")
    field(page, "parameters.data_config.batch_size.values").fill("16")
    assert document(page)["parameters"]["data_config.batch_size"] == {"type": "int", "values": [16]}
    page.get_by_role("button", name="Remove data_config.batch_size").click()
    expect(page.locator("#parameters .row")).to_have_count(1)
    assert list(document(page)["parameters"]) == ["learning_rate"]


def test_conditions_constraints_and_evaluations_are_written_in_fields(page: Page):
    page.goto("/ui/sweeps/new")
    add_parameter(page, "lora_r")
    field(page, "parameters.learning_rate.only_if").fill("lora_r=8, 16")
    field(page, "require").fill("lora_r * 2 <= 64\n\nlora_r > 0")
    page.get_by_role("button", name="Add constraint").click()
    expect(field(page, "constraints.0.metric")).to_be_focused()
    field(page, "constraints.0.metric").fill("step_seconds")
    expect(field(page, "constraints.0.metric")).to_have_attribute("aria-invalid", "true")
    field(page, "constraints.0.at_most").fill("2.5")
    expect(field(page, "constraints.0.metric")).not_to_have_attribute("aria-invalid", "true")
    page.get_by_role("button", name="Add evaluation").click()
    at = "job.training_config.evaluations.0"
    expect(field(page, f"{at}.benchmarks.0.name")).to_be_focused()
    field(page, f"{at}.on").select_option("checkpoint")
    field(page, f"{at}.benchmarks.0.name").fill("exact_match")
    field(page, f"{at}.benchmarks.0.dataset").fill("examples/cluster/data.jsonl")
    field(page, f"{at}.benchmarks.0.parameters").fill('max_new_tokens=16\nstop=["\\n"]\nanswer="7"')
    field(page, "objective.metric").fill("benchmark:exact_match/exact_match")

    made = document(page)
    assert made["parameters"]["learning_rate"]["only_if"] == {"lora_r": [8, 16]}
    assert made["require"] == ["lora_r * 2 <= 64", "lora_r > 0"]
    assert made["constraints"] == [{"metric": "step_seconds", "at_most": 2.5}]
    options = {"max_new_tokens": 16, "stop": ["\n"], "answer": "7"}
    benchmark = {"name": "exact_match", "dataset": "examples/cluster/data.jsonl", "parameters": options}
    assert made["job"]["training_config"]["evaluations"] == [{"on": "checkpoint", "benchmarks": [benchmark]}]
    page.reload()
    expect(field(page, f"{at}.benchmarks.0.parameters")).to_have_value('max_new_tokens=16\nstop=["\\n"]\nanswer="7"')
    expect(field(page, "parameters.learning_rate.only_if")).to_have_value("lora_r=8, 16")
    page.get_by_role("button", name="Remove Constraint 1").click()
    expect(page.locator("#constraints .row")).to_have_count(0)
    assert document(page)["constraints"] == []


def test_what_a_field_cannot_say_is_left_to_the_document(page: Page):
    page.goto("/ui/sweeps/new")
    made = document(page)
    made["parameters"]["learning_rate"] = {"type": "categorical", "values": ["0.1", "a,b"]}
    page.fill("#document", json.dumps(made))

    expect(field(page, "parameters.learning_rate.values")).to_be_disabled()
    field(page, "name").fill("kept")
    assert document(page)["parameters"] == made["parameters"]


def test_a_sweep_is_forked_by_form(page: Page, site: Site, content: Content):
    page.goto(f"/ui/sweeps/{content.sweep}")
    page.get_by_role("link", name="Fork").click()
    expect(page.locator("#check")).to_contain_text("It can be created")
    field(page, "name").fill("forked by form")
    field(page, "budget.max_trials").fill("1")
    expect(page.locator("#check")).to_contain_text("1, ")
    made = document(page)
    assert "job" not in made
    page.get_by_role("button", name="Create fork").click()

    page.wait_for_url(lambda url: "/ui/sweeps/sweep-" in url and not url.endswith("/fork") and content.sweep not in url)
    expect(page.locator("#notices")).to_contain_text("forked by form makes its first trial")
    fork = page.url.rpartition("/")[2]
    assert site.ask("GET", f"/v1/sweeps/{fork}")["document"]["warm_start"]["sweeps"] == [content.sweep]


def test_several_objectives_are_left_to_the_document(page: Page):
    page.goto("/ui/sweeps/new")
    made = document(page) | {"objective": [{"metric": "loss"}, {"metric": "step_seconds", "goal": "minimize"}]}
    page.fill("#document", json.dumps(made))

    expect(field(page, "objective.metric")).to_be_disabled()
    field(page, "name").fill("two")
    assert document(page)["objective"] == made["objective"]


def test_a_parameter_is_added_by_the_keyboard_with_a_range_of_its_method(page: Page):
    page.goto("/ui/sweeps/new")
    page.get_by_label("Another parameter").focus()
    page.keyboard.type("lora_r")
    page.keyboard.press("Escape")
    page.keyboard.press("Enter")

    expect(field(page, "parameters.lora_r.type")).to_be_focused()
    assert document(page)["parameters"]["lora_r"] == {"type": "int", "min": 8, "max": 32}
    page.reload()
    expect(field(page, "parameters.lora_r.max")).to_have_value("32")
    expect(page.locator("#draft")).to_be_visible()


def test_an_evaluation_is_created_by_filling_in_the_form(page: Page, site: Site, content: Content):
    page.goto(f"/ui/jobs/{content.completed}")
    page.get_by_role("link", name="Evaluate").click()
    expect(field(page, "model.job_id")).to_have_value(content.completed)
    field(page, "model.job_id").fill("")
    field(page, "model.model_uri").fill(f"{site.running.data_dir.parent}/no-such-model")
    field(page, "benchmarks.0.dataset").fill("examples/cluster/data.jsonl")
    page.get_by_role("button", name="Add benchmark").click()
    expect(field(page, "benchmarks.1.name")).to_be_focused()
    field(page, "benchmarks.1.name").fill("rouge_x")
    field(page, "benchmarks.1.dataset").fill("examples/cluster/data.jsonl")
    expect(field(page, "benchmarks.1.name")).to_have_attribute("aria-invalid", "true")
    field(page, "benchmarks.1.name").fill("exact_match")
    field(page, "benchmarks.1.num_samples").fill("5")
    expect(field(page, "benchmarks.1.name")).not_to_have_attribute("aria-invalid", "true")
    expect(field(page, "model.model_uri")).to_have_attribute("aria-invalid", "true")
    assert document(page)["benchmarks"] == [
        {"name": "perplexity", "dataset": "examples/cluster/data.jsonl"},
        {"name": "exact_match", "dataset": "examples/cluster/data.jsonl", "num_samples": 5},
    ]

    page.get_by_role("button", name="Remove Benchmark 1").click()
    expect(page.locator("#benchmarks .row")).to_have_count(1)
    expect(field(page, "benchmarks.0.name")).to_have_value("exact_match")


@pytest.mark.parametrize("path", ["/ui/sweeps/new", "/ui/evaluations/new"])
def test_nothing_is_red_before_a_person_came_to_it(page: Page, path: str):
    page.goto(path)

    expect(page.locator("#check")).to_contain_text("Not ready yet")
    expect(page.locator("#job-form [aria-invalid]")).to_have_count(0)
