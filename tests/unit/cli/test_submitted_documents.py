"""What the command line makes of a document before it submits it: values set, variables, the code's directory."""

import copy
import os
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest

from app.cli.client.code import packed
from app.cli.client.documents.assignments import assign
from app.cli.client.documents.variables import expand
from tests.systems.commands import run
from workers.fetching.code.unpack import UnpackLimits, unpack

DOCUMENT: dict[str, Any] = {
    "name": "a",
    "training_config": {"hyperparameters": {"lr": "1"}, "framework": {"custom_command": ["a", "b"]}},
    "data_config": {"sources": [{"path": "x"}, {"path": "y"}]},
}


def assigned(path: str, text: str) -> dict[str, Any]:
    document = copy.deepcopy(DOCUMENT)
    assign(document, [(path, text)])
    return document


@pytest.mark.parametrize(
    ("path", "text", "found"),
    [
        ("name", "b", "b"),
        ("name", '"7"', "7"),
        ("name", "7", 7),
        ("resource_config.gpu_count", "2", 2),
        ("scheduling_config.preemptible", "true", True),
        ("output_config.output_path", "null", None),
        ("training_config.base_model.dtype", "NaN", "NaN"),
        ("data_config.sources.1.path", "/srv/z", "/srv/z"),
        ("data_config.sources.2", '{"path": "z"}', {"path": "z"}),
        ("training_config.framework.custom_command.0", "c", "c"),
        ("data_config.sources.2.path", "/srv/z", "/srv/z"),
        ("checkpoint_config.places.0.path", "/srv/z", "/srv/z"),
        ("checkpoint_config.names.0", "z", "z"),
        ("training_config.packages.python", "3.10", "3.10"),
        ("training_config.packages.python", '"3.10"', "3.10"),
    ],
)
def test_set_puts_a_value_where_its_path_says(path: str, text: str, found: object) -> None:
    value: Any = assigned(path, text)
    for name in path.split("."):
        value = value[int(name)] if isinstance(value, list) else value[name]

    assert value == found
    assert type(value) is type(found)


def test_parameters_of_sweeps_have_names_with_dots() -> None:
    document: dict[str, Any] = {"parameters": {"data_config.batch_size": {"type": "int", "min": 4, "max": 32}}}

    assign(
        document,
        [
            ("parameters.data_config.batch_size.max", "64"),
            ("parameters.data_config.seed", "3"),
            ("parameters.environment.MODE.values", '["a", "b"]'),
            ("parameters.environment.max", "1"),
            ("parameters.lr", '{"type": "double"}'),
        ],
    )

    assert document["parameters"] == {
        "data_config.batch_size": {"type": "int", "min": 4, "max": 64},
        "data_config.seed": 3,
        "environment.MODE": {"values": ["a", "b"]},
        "environment.max": 1,
        "lr": {"type": "double"},
    }


def test_lists_that_are_not_there_are_filled_item_by_item() -> None:
    document: dict[str, Any] = {}
    assign(
        document,
        [
            ("data_config.sources.0.path", "a"),
            ("data_config.sources.1.path", "b"),
            ("data_config.sources.1.split", "validation"),
            ("training_config.hyperparameters.0", "1"),
        ],
    )

    assert document == {
        "data_config": {"sources": [{"path": "a"}, {"path": "b", "split": "validation"}]},
        "training_config": {"hyperparameters": {"0": "1"}},
    }


def test_maps_of_texts_get_texts_and_names_with_dots() -> None:
    document = copy.deepcopy(DOCUMENT)
    assign(
        document,
        [
            ("training_config.hyperparameters.max_steps", "200"),
            ("training_config.hyperparameters.lr", "1e-4"),
            ("training_config.framework.config.metric.loss", "loss=(.*)"),
            ("labels.example.org/team", "true"),
        ],
    )

    assert document["training_config"]["hyperparameters"] == {"lr": "1e-4", "max_steps": "200"}
    assert document["training_config"]["framework"]["config"] == {"metric.loss": "loss=(.*)"}
    assert document["labels"] == {"example.org/team": "true"}


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("name.x", '--set name.x: name is "a", which is neither an object nor a list'),
        ("name.x.y", 'name is "a"'),
        ("data_config.sources.path", "'path' is no item of it; its 2 items have the numbers 0 to 1, and 2 app"),
        ("data_config.sources.7.path", "'7' is no item"),
        ("data_config.sources.-1", "'-1' is no item"),
        ("data_config.sources.0.path.x", 'data_config.sources.0.path is "x"'),
    ],
)
def test_set_through_what_has_no_parts_is_an_error(path: str, message: str) -> None:
    with pytest.raises(click.ClickException) as refused:
        assigned(path, "1")

    assert message in refused.value.message


@pytest.mark.parametrize("text", ["name", "=x", "a..b=1", ".=1"])
def test_set_needs_a_path_and_a_value(text: str, tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text("{}")

    refused = run("submit", str(tmp_path / "job.json"), "--set", text)

    assert (refused.exit_code, "is not PATH=VALUE" in refused.stderr) == (2, True)


def test_variables_of_the_environment() -> None:
    document = {
        "name": "${RUN}-1",
        "data_config": {"sources": [{"path": "/srv/${TEAM:-all}/x"}]},
        "labels": {"a": "$${RUN}", "b": "$(RUN) $RUN ${not-one}", "c": "${EMPTY:-}${EMPTY:-full}"},
        "training_config": {"framework": {"custom_command": ["sh", "-c", "echo ${RANK}"]}, "max_retries": 3},
    }

    found = expand(document, {"RUN": "${TEAM}", "EMPTY": ""})

    assert found["name"] == "${TEAM}-1"
    assert found["data_config"]["sources"][0]["path"] == "/srv/all/x"
    assert found["labels"] == {"a": "${RUN}", "b": "$(RUN) $RUN ${not-one}", "c": "full"}
    assert found["training_config"] == document["training_config"]


def test_variable_that_is_not_set_names_itself_its_field_and_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("name: a\ntraining_config: {environment: {KEY: '${NOT_SET_HERE}'}}\n")

    refused = run("submit", str(tmp_path / "job.yaml"))

    assert refused.exit_code == 1
    for part in ("training_config.environment.KEY", "NOT_SET_HERE", "export it", ":-default", "$${NOT_SET_HERE}"):
        assert part in refused.stderr


@pytest.fixture
def code(tmp_path: Path) -> Path:
    root = tmp_path / "repository" / "code"
    for name, content in {
        "train.py": "x",
        "data/a.bin": "b",
        "data/keep.bin": "k",
        "sub/.gitignore": "!wanted.log\n/only_here\n",
        "sub/wanted.log": "w",
        "sub/other.log": "o",
        "sub/only_here": "o",
        "deep/only_here": "o",
        "build/x/y": "y",
        "__pycache__/train.pyc": "p",
        "top.tmp": "t",
        ".gitignore": "*.log\n*.bin\n!keep.bin\nbuild/\n",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    (root.parent / ".gitignore").write_text("*.tmp\n")
    subprocess.run(["git", "init", "--quiet", str(root.parent)], check=True)
    return root


def names(code: Path, *, is_code: bool = True) -> set[str]:
    with packed(code, is_code=is_code) as bundle:
        return set(bundle.names)


def test_what_git_ignores_is_left_out(code: Path) -> None:
    listed = subprocess.run(
        ["git", "-C", str(code), "ls-files", "--others", "--exclude-standard"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert names(code) == set(listed.stdout.split()) - {"__pycache__/train.pyc"}
    assert "data/a.bin" in names(code, is_code=False)


def test_equal_content_gives_equal_bytes(code: Path, tmp_path: Path) -> None:
    with packed(code, is_code=True) as one:
        os.utime(code / "train.py", (1, 1))
        (code / "train.py").chmod(0o600)
        (code / "data" / "new.bin").write_text("ignored")
        with packed(code, is_code=True) as other:
            assert one.sha256 == other.sha256
        unpack(one.archive, tmp_path / "there", UnpackLimits(max_bytes=1000, max_files=100))
    assert (tmp_path / "there" / "train.py").read_text() == "x"
    (code / "train.py").chmod(0o755)
    with packed(code, is_code=True) as other:
        assert one.sha256 != other.sha256


def test_links_stay_within_the_directory(code: Path, tmp_path: Path) -> None:
    (code / "inner").symlink_to("data/keep.bin")
    assert "inner" in names(code)

    (code / "outer").symlink_to("../../secret")
    with pytest.raises(
        click.ClickException, match=r"outer is a link that leads out of the directory, to \.\./\.\./secret"
    ):
        names(code)


@pytest.mark.parametrize("name", ["a\nb", "\x1b[31m", "/".join(["d"] * 65), "/".join(["n" * 200] * 6)])
def test_names_that_a_node_refuses_are_not_uploaded(code: Path, name: str) -> None:
    (code / name).parent.mkdir(parents=True, exist_ok=True)
    (code / name).write_text("")

    with pytest.raises(click.ClickException, match="1024 bytes, 64 names and no control characters"):
        names(code)


def test_link_to_the_directory_itself_is_not_uploaded(code: Path) -> None:
    (code / "all").symlink_to(".")

    with pytest.raises(click.ClickException, match="contains itself"):
        names(code)


def test_what_is_no_file_is_refused(code: Path) -> None:
    os.mkfifo(code / "pipe")

    with pytest.raises(click.ClickException, match="pipe is no regular file"):
        names(code)


def test_large_code_names_its_largest_files(code: Path) -> None:
    with (code / "weights").open("wb") as file:
        file.truncate(300 << 20)

    with pytest.raises(click.ClickException) as refused:
        names(code)

    for part in ("code may have 256 MiB", "weights 300.0 MiB", ".gitignore", "trainyard data push"):
        assert part in refused.value.message


def test_empty_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(click.ClickException, match="has no files"):
        names(tmp_path)


@pytest.mark.parametrize("text", ["1e400", "-1e400", "[1e400]", "[" * 60_000], ids=lambda text: text[:8])
def test_set_takes_what_json_cannot_hold_as_a_text(text: str) -> None:
    assert assigned("name", text)["name"] == text


@pytest.mark.parametrize("depth", [600, 100_000])
@pytest.mark.parametrize("suffix", ["json", "yaml"])
def test_deeply_nested_document_is_refused_in_words(tmp_path: Path, depth: int, suffix: str) -> None:
    file = tmp_path / f"job.{suffix}"
    file.write_text(
        ('{"a": ' if suffix == "json" else "a: ") + "[" * depth + "]" * depth + ("}" if suffix == "json" else "")
    )

    refused = run("submit", str(file))

    assert (refused.exit_code, "nested too deeply" in refused.stderr) == (1, True)
