"""What of a command's words a script's sandbox shows: files that the project may read, and never a whole root."""

import os

import pytest

from app.domain.spec.locations.paths import ReadingRules
from app.domain.spec.model import Framework
from workers.prepare.inputs.input_library import Library
from workers.prepare.inputs.named_files import named_files


@pytest.fixture
def library(tmp_path):
    data_dir, mine = tmp_path / "data", tmp_path / "mine"
    for directory in (data_dir / "files/jobs/job-ours", data_dir / "files/jobs/job-x", mine / "code", tmp_path / "out"):
        directory.mkdir(parents=True)
    jobs = data_dir / "files/jobs"
    files = ("mine/code/train.py", "mine/code/a.yaml", "mine/top.py", "out/secret.py", "data/secret.key")
    for file in (*(tmp_path / each for each in files), jobs / "job-x/w.bin", jobs / "job-ours/w.bin"):
        file.write_text("pass\n")
    (mine / "code/link.py").symlink_to(tmp_path / "out/secret.py")
    rules = ReadingRules(roots=(str(data_dir / "files"), str(mine)), data_dir=str(data_dir), real_path=os.path.realpath)
    projects = {"job-ours": "ours", "job-x": "x"}
    return Library(rules=rules, cache_dir=tmp_path / "cache", project="ours", project_of_job=projects.get)


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["python", "{root}/mine/code/train.py"], ["mine/code"]),
        (["sh", "-c", "cd /tmp && python '{root}/mine/code/train.py' > log"], ["mine/code"]),
        (["x", "--config={root}/mine/code/a.yaml"], ["mine/code/a.yaml"]),
        (["x", "{root}/mine/code"], ["mine/code"]),
        (["python", "{root}/mine/top.py"], ["mine/top.py"]),
        (["x", "{root}/data/files/jobs/job-ours/w.bin"], ["data/files/jobs/job-ours/w.bin"]),
        (["x", "{root}/data/files/jobs/job-x/w.bin", "{root}/data/secret.key", "{root}/data"], []),
        (["x", "{root}/mine", "{root}/mine/missing.py", "{root}/out/secret.py", "{root}/mine/code/link.py"], []),
        (["x", "{root}/mine/../out/secret.py", "https://example.org{root}/mine/code/a.yaml", "$(X){root}"], []),
    ],
)
@pytest.mark.parametrize("field", ["custom_command", "custom_arguments"])
def test_files_that_words_name_are_shown(library, tmp_path, words, shown, field):
    named = [word.replace("{root}", str(tmp_path)) for word in words]

    found = named_files(library, Framework.from_json({field: named}))

    assert found == tuple(tmp_path / each for each in shown)
