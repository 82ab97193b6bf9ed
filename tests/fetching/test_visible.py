"""What was fetched lies in the hidden data directory; the sandbox shows it, and only for reading."""

import subprocess
import sys

from tests.fetching.web_server import file
from workers.prepare.inputs.resolve_inputs import DataRequest, find
from workers.sandbox.sandbox import Bubblewrap
from workers.sandbox.spec import FilesystemView, SandboxSpec

LINES = b'{"text": "hello"}\n'
PROBE = """
import os, sys
print(open(sys.argv[1]).read(), open(sys.argv[2]).read(), os.listdir(sys.argv[3]), sep="|", end="")
try:
    os.chmod(sys.argv[1], 0o666)
    open(sys.argv[1], "a")
except OSError as error:
    print("|" + type(error).__name__)
"""


def test_fetched_files_and_links_are_seen_in_the_sandbox(web, make_library, mine, tmp_path):
    web.answers["/a.jsonl"] = file(LINES)
    for name in ("one.txt", "two.txt"):
        (mine / name).write_text(name)
    data_dir, run_dir = tmp_path / "data", tmp_path / "data/run/job"
    run_dir.mkdir(parents=True)
    requests = [DataRequest(location=web.url("/a.jsonl")), DataRequest(location="*.txt", custom=True)]
    fetched, linked = find(make_library(), [], requests)[1]
    view = FilesystemView(run_dir=run_dir, data_dir=data_dir, readable=(*fetched.visible, *linked.visible))
    command = [
        sys.executable,
        "-c",
        PROBE,
        str(fetched.path),
        str(linked.path / "two.txt"),
        str(data_dir / "cache/data"),
    ]

    with Bubblewrap().enclosed(command, SandboxSpec(view=view)) as enclosed:
        said = subprocess.run(enclosed.command, pass_fds=enclosed.files, capture_output=True, text=True, check=False)

    assert said.stdout.split("|") == [LINES.decode(), "two.txt", "['uses']", "OSError\n"], said.stderr
    assert fetched.path.read_bytes() == LINES
