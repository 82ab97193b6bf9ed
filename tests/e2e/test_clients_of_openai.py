"""OpenAI's client for Node and the libraries that stand on its clients, unchanged, against a running system."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.systems.clients import CLIENTS, node_packages, python_with
from tests.systems.forked_agents import ForkedAgents
from tests.systems.system import TRAINYARD, System
from tests.systems.with_gateway import gateway_of

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


@pytest.fixture
def environment(shared_system: System, forked_agents: ForkedAgents, assets: dict[str, str]) -> Iterator[dict[str, str]]:
    """Of a program that finds the system with the model `small` as it would find OpenAI."""
    system = shared_system
    forked_agents.serve_system(system)
    model = system.inputs / "model-of-clients"
    if not model.exists():
        shutil.copytree(assets["model"], model)
        subprocess.run(
            [TRAINYARD, "models", "add", "small", str(model), "--local"], env=system.environment, check=True, timeout=60
        )
    _, made = system.call("POST", "/v1/keys", {"role": "user", "project": "default", "name": "client"})
    with gateway_of(system):
        yield {
            "PATH": os.environ["PATH"],
            "HOME": str(system.folder),
            "OPENAI_BASE_URL": f"http://127.0.0.1:{system.port}/v1",
            "OPENAI_API_KEY": made["data"]["key"],
        }


@pytest.fixture
def chats(tmp_path: Path) -> Path:
    lines = [
        [{"role": "user", "content": f"def f{number}(x):"}, {"role": "assistant", "content": f"return {number}"}]
        for number in range(12)
    ]
    path = tmp_path / "train.jsonl"
    path.write_text("".join(json.dumps({"messages": each}) + "\n" for each in lines))
    return path


def run(command: list[str], environment: dict[str, str], folder: Path) -> str:
    """What it prints. The program asserts what it gets."""
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=280
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_client_for_node(environment: dict[str, str], chats: Path, tmp_path: Path) -> None:
    packages = node_packages()
    (tmp_path / "node_modules").symlink_to(packages)
    program = str(shutil.copy(CLIENTS / "openai_client.mjs", tmp_path))

    said = run([str(packages / ".bin" / "node"), program, str(chats), "small"], environment, tmp_path)

    assert said.startswith("done ft:small:default:node:")


def test_langchain(environment: dict[str, str], tmp_path: Path) -> None:
    program = str(CLIENTS / "langchain_client.py")

    said = run([str(python_with("langchain")), program, "small"], environment, tmp_path)

    assert said.endswith("done\n")


def test_litellm(environment: dict[str, str], chats: Path, tmp_path: Path) -> None:
    program = str(CLIENTS / "litellm_client.py")
    # It would fetch the prices of models.
    environment = {**environment, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}

    said = run([str(python_with("litellm")), program, str(chats), "small"], environment, tmp_path)

    assert said.endswith("done\n")


def test_instructor(environment: dict[str, str], tmp_path: Path) -> None:
    program = str(CLIENTS / "instructor_client.py")

    said = run([str(python_with("instructor")), program, "small"], environment, tmp_path)

    assert said.endswith("done\n")
