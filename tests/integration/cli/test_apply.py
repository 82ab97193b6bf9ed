"""`trainyard apply` against the real API over real HTTP."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from werkzeug.serving import make_server

from app.cli.main import main
from app.compat.images import NO_REGISTRIES
from tests.systems.apps import Api

MANIFESTS = """
apiVersion: ome.io/v1beta1
kind: ClusterTrainingRuntime
metadata: {name: team}
spec: {mlPolicy: {torch: {numProcPerNode: 1}}}
---
apiVersion: ome.io/v1beta1
kind: TrainingJob
metadata: {name: words}
spec:
  runtimeRef: {name: team}
  trainer: {command: [python, train.py]}
"""


@pytest.fixture
def served(api: Api, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    server = make_server("127.0.0.1", 0, api.app, threaded=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setenv("TRAINYARD_URL", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("TRAINYARD_API_KEY", api.key)
    yield api
    server.shutdown()
    thread.join()
    server.server_close()


def apply(text: str, folder: Path, *more: str) -> Result:
    (folder / "manifest.yaml").write_text(text)
    return CliRunner().invoke(main, ["apply", "-f", str(folder / "manifest.yaml"), *more])


def test_manifests_are_created_and_applied_again(served: Api, tmp_path: Path) -> None:
    first = apply(MANIFESTS, tmp_path)
    again = apply(MANIFESTS, tmp_path, "--json")

    assert (first.exit_code, again.exit_code) == (0, 0), first.output + again.output
    assert first.output.splitlines() == [
        "clustertrainingruntime.ome.io/team created",
        "trainingjob.ome.io/words created",
    ]
    applied: list[Any] = json.loads(again.output)
    assert [each["kind"] for each in applied] == ["ClusterTrainingRuntime", "TrainingJob"]
    assert served.get("/v1/jobs")["total_count"] == 1


def test_fields_without_effect_are_named(served: Api, tmp_path: Path) -> None:
    model = "---\n" + json.dumps(
        {
            "apiVersion": "ome.io/v1beta1",
            "kind": "BaseModel",
            "metadata": {"name": "tiny"},
            "spec": {"storage": {"storageUri": "/srv/model", "schemaPath": "/mnt"}},
        }
    )

    answer = apply(MANIFESTS.replace("command: [", 'image: "x", command: [') + model, tmp_path)

    assert answer.exit_code == 0, answer.output
    assert answer.stdout.splitlines()[-1] == "basemodel.ome.io/tiny created"
    assert answer.stderr.splitlines() == [
        f"Warning: spec.trainer.image: {NO_REGISTRIES}",
        "Warning: spec.storage.schemaPath: data schemas are not supported",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "holds no manifests"),
        ("- 1", "each is a mapping"),
        ("kind: Pod\napiVersion: v1", "kind one of TrainingJob"),
        ("kind: TrainingJob\napiVersion: ome.io/v1beta1", "no metadata.name"),
        (MANIFESTS.replace("team}\n  trainer", "none}\n  trainer"), "spec.runtimeRef.name: there is no"),
    ],
)
def test_what_is_wrong_is_one_line(served: Api, tmp_path: Path, text: str, said: str) -> None:
    answer = apply(text, tmp_path)

    assert answer.exit_code == 1
    assert said in answer.output
    assert served.get("/v1/jobs")["total_count"] == 0
