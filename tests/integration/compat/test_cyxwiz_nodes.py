"""What CyxWiz clients read beside jobs: nodes, messages, errors of paths."""

from typing import Any

from werkzeug.test import TestResponse

from tests.builders.factories import make_node
from tests.systems.apps import Api

BASE = "/compat/cyxwiz/v1"


def said(answer: TestResponse) -> Any:
    return answer.json


def test_nodes_have_the_scores_that_cyxwiz_documents(api: Api) -> None:
    with api.db.write() as session:
        make_node(session, "gpu-1", devices=1, device_type="a100", memory_mb=80_000, ram_mb=1000)
        make_node(session, "cpu-1", devices=2, ram_mb=64_000)

    def scores(query: str) -> dict[str, float]:
        answer = api.call("GET", f"{BASE}/nodes?order_by=name&{query}")
        return {node["node_id"]: node["score"] for node in said(answer)["nodes"]}

    # 100 for the device, 50 for the memory, 30 times the reputation; nothing runs there.
    assert scores("required_device=CUDA&min_memory_mb=40000") == {"cpu-1": 30.0, "gpu-1": 180.0}
    assert scores("required_device=CPU&min_memory_mb=32000") == {"cpu-1": 180.0, "gpu-1": 30.0}


def test_messages_are_served_for_compilers(api: Api) -> None:
    answer = api.client.get(f"{BASE}/messages.proto")

    assert (answer.status_code, answer.mimetype) == (200, "text/plain")
    assert "int64 max_output_size_mb = 12;" in answer.text


def test_unknown_path_is_an_error_of_the_vocabulary(api: Api) -> None:
    answer = api.call("GET", f"{BASE}/nothing")

    assert answer.status_code == 404
    assert (said(answer)["code"], "error" in said(answer)) == (5, False)
