"""Whether the kernel holds the scores by which it ends processes when a machine has no memory left."""

import shutil
import subprocess
import sys

import pytest

ASK = "from app.host.oom_score import holds_scores; print(holds_scores())"
IN_A_NAMESPACE = ("unshare", "--user", "--map-root-user")


def test_capability_of_a_user_namespace_is_worth_nothing() -> None:
    if shutil.which("unshare") is None or subprocess.run([*IN_A_NAMESPACE, "true"], check=False).returncode:
        pytest.skip("no user namespaces here")

    asked = subprocess.run([*IN_A_NAMESPACE, sys.executable, "-c", ASK], capture_output=True, text=True, check=True)

    assert asked.stdout == "False\n"
