"""docs/tutorials/clients-of-other-systems.md as a reader follows it: making the key, then a section's commands."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.doubles.tls import tls_before
from tests.systems.forked_agents import ForkedAgents
from tests.systems.system import System

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]


def blocks(section: str) -> list[str]:
    """The shell blocks of a section; of the page's beginning where it is empty."""
    page = (ROOT / "docs/tutorials/clients-of-other-systems.md").read_text(encoding="utf-8")
    text = page.partition(f"\n## {section}\n")[2] if section else page
    return re.findall(r"^```sh\n(.*?)^```$", text.partition("\n## ")[0], re.MULTILINE | re.DOTALL)


def followed(system: System, section: str, folder: Path, **instead: str) -> str:
    """What the commands print, with the places of this test instead of the page's."""
    commands = "\n".join([*blocks(""), *blocks(section)])
    for said, meant in {"http://127.0.0.1:8000": f"http://127.0.0.1:{system.port}", **instead}.items():
        assert said in commands, f"the page no longer says {said}"
        commands = commands.replace(said, meant)
    if not (folder / "examples").exists():
        (folder / "examples").symlink_to(ROOT / "examples")
    environment = {
        **system.environment,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(folder),
    }
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=150,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_clients_of_modelarts_runai_and_ome(make_system: Callable[..., System], tmp_path: Path) -> None:
    system = make_system().start("n1")
    with tls_before(system.port, tmp_path) as (port, certificate):
        server = f"https://127.0.0.1:{port} --certificate-authority={certificate}"

        modelarts = followed(system, "ModelArts", tmp_path)
        runai = followed(system, "Run:ai", tmp_path)
        ome = followed(system, "OME", tmp_path, **{"https://YOUR.NAME": server})

    assert modelarts.splitlines()[0].endswith(" Completed")
    assert modelarts.splitlines()[1:4] == ["step 1", "step 2", "step 3"]
    assert re.fullmatch(r"\S+ Completed\n\['\S+'\]\n", runai)
    assert "trainingjob.ome.io/count condition met" in ome
    assert {f"[pod/count-{rank}/trainer] rank {rank} step 3" for rank in (0, 1)} <= set(ome.splitlines())
    assert 'trainingjob.ome.io "count" deleted' in ome
    assert sorted((job["name"], job["status"]) for job in system.get("/v1/jobs")["jobs"]) == [
        ("count", "COMPLETED"),
        ("count", "COMPLETED"),
        ("count", "COMPLETED"),
    ]


def test_clients_of_cyxwiz_and_openai(
    make_system: Callable[..., System], forked_agents: ForkedAgents, assets: dict[str, str], tmp_path: Path
) -> None:
    folder = Path(assets["model"]).parent
    system = make_system(TRAINYARD_STORAGE_ROOTS=str(folder)).start("n1")
    forked_agents.serve_system(system)

    said = followed(system, "CyxWiz", tmp_path, **{"$PWD/data/demo": str(folder)})

    tuned = followed(system, "OpenAI", tmp_path, **{"$PWD/data/demo": str(folder)})

    assert '"status": "SUCCESS"' in said or '"status":"SUCCESS"' in said, said
    assert re.search(r"^checkpoint ft:tiny:default:docs:\w{8}:ckpt-step-\d+$", tuned, re.MULTILINE)
    assert re.fullmatch(r"succeeded ft:tiny:default:docs:\w{8}", tuned.splitlines()[-1])
