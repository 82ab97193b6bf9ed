"""What may be submitted and why jobs fail, as programs read it."""

from app.domain.errors import ERROR_TYPES
from app.domain.lifecycle.retry_policy import may_retry
from app.domain.spec.hyperparameters.parsing import TABLES
from app.schemas.spec.training_config import TRAINING_TYPES
from tests.systems.apps import Api


def test_every_training_there_is_stands_in_the_table(sqlite_api: Api) -> None:
    rows = sqlite_api.get("/v1/training-types")["training_types"]

    pairs = [(row["framework"], row["training_type"]) for row in rows]
    assert pairs == [*TABLES, *(("CUSTOM", name) for name in (*TRAINING_TYPES, "CUSTOM"))]
    by_pair = dict(zip(pairs, rows, strict=True))
    lora, script = by_pair["HF_TRAINER", "LORA"], by_pair["CUSTOM", "SFT"]
    whole = ["safetensors", "pytorch", "gguf", "onnx"]
    assert lora["export_formats"] == [*whole, "merged", "adapter"]
    assert by_pair["HF_TRAINER", "SFT"]["export_formats"] == whole
    assert by_pair["HF_TRAINER", "CONTINUED_PRETRAIN"]["record_shapes"] == ['{"text"}']
    dpo = by_pair["HF_TRAINER", "DPO"]
    assert dpo["record_shapes"][0] == '{"prompt", "chosen", "rejected"}'
    assert dpo["export_formats"] == lora["export_formats"]
    alpha = next(row for row in dpo["hyperparameters"] if row["name"] == "lora_alpha")
    assert alpha["only_with"] == {"use_lora": [True]}
    rlhf = by_pair["HF_TRAINER", "RLHF"]
    assert rlhf["record_shapes"][0] == '{"prompt", …}'
    reward = next(row for row in rlhf["hyperparameters"] if row["name"] == "reward")
    assert (reward["type"], reward["default"]) == ("text", "exact")
    assert (script["any_hyperparameter"], script["hyperparameters"]) == (True, [])
    assert not lora["any_hyperparameter"]
    rank = next(row for row in lora["hyperparameters"] if row["name"] == "lora_r")
    assert {"type": "int", "default": 16, "minimum": 1, "choices": []}.items() <= rank.items()


def test_every_hyperparameter_says_all_there_is_to_know(sqlite_api: Api) -> None:
    rows = sqlite_api.get("/v1/training-types")["training_types"]

    parameters = [parameter for row in rows for parameter in row["hyperparameters"]]
    assert {tuple(sorted(parameter)) for parameter in parameters} == {
        ("choices", "default", "maximum", "meaning", "minimum", "name", "only_with", "type")
    }
    assert [parameter["name"] for parameter in parameters if not parameter["meaning"]] == []
    assert {parameter["type"] for parameter in parameters if parameter["choices"]} == {"choice"}


def test_every_default_may_be_submitted(sqlite_api: Api) -> None:
    rows = [row for row in sqlite_api.get("/v1/training-types")["training_types"] if row["framework"] != "CUSTOM"]

    assert rows
    for row in rows:
        given = {each["name"]: str(each["default"]).lower() for each in row["hyperparameters"]}
        changes = {"training_type": row["training_type"], "hyperparameters": given}
        assert sqlite_api.submit(training_config=changes)


def test_every_error_type_stands_in_the_table(sqlite_api: Api) -> None:
    rows = sqlite_api.get("/v1/error-types")["error_types"]

    assert {row["name"]: (row["meaning"], row["what_to_do"]) for row in rows} == {
        name: (kind.meaning, kind.what_to_do) for name, kind in ERROR_TYPES.items()
    }
    assert {row["name"] for row in rows if row["retried"]} == set(filter(may_retry, ERROR_TYPES))
    by_name = {row["name"]: row for row in rows}
    assert by_name["SCRIPT_ERROR"]["recovery"].startswith("fails at once, or with custom_retry_on_error: rescheduled")
    assert by_name["SCRIPT_ERROR"]["retried"]
    assert not by_name["TRAINER_ERROR"]["retried"]
    assert all(row["recovery"] for row in rows)


def test_both_bases_have_the_tables(sqlite_api: Api) -> None:
    for table in ("training-types", "error-types"):
        assert sqlite_api.get(f"/v1/modules/scaimind/{table}") == sqlite_api.get(f"/v1/{table}")
