"""Packages that attack the node which installs them: what they can run, replace, fill and make it read."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.domain.spec.locations.outbound_proxy import OutboundProxy
from app.domain.spec.packages import Packages
from app.host.uv import find_uv
from config.packages import PackagesSettings
from tests.doubles.outbound_proxy import company_proxy
from tests.systems.package_index import Index, package_index, source, wheel
from workers.attempt_failed import AttemptFailed
from workers.prepare.packages.build import Builder
from workers.prepare.packages.interpreters import own_interpreter
from workers.prepare.packages.request import EnvironmentRequest
from workers.prepare.packages.store import EnvironmentStore, StoredEnvironment
from workers.sandbox.sandbox import choose_sandbox

Install = Callable[..., StoredEnvironment]

# Of a source distribution; ATTACK runs when it is built, with the directory of the installation as ``top``.
BACKEND = """
import os, resource, sys, zipfile

def get_requires_for_build_wheel(config_settings=None):
    return []

def build_wheel(directory, config_settings=None, metadata_directory=None):
    top = os.path.dirname(os.environ["HOME"])
    said = ""
    ATTACK
    files = {
        "made/__init__.py": "SAID = " + repr(said),
        "made-1.dist-info/METADATA": "Metadata-Version: 2.1\\nName: made\\nVersion: 1\\n",
        "made-1.dist-info/WHEEL": "Wheel-Version: 1.0\\nGenerator: t\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    }
    files["made-1.dist-info/RECORD"] = "".join(f"{path},,\\n" for path in [*files, "made-1.dist-info/RECORD"])
    with zipfile.ZipFile(os.path.join(directory, "made-1-py3-none-any.whl"), "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return "made-1-py3-none-any.whl"
"""


@pytest.fixture
def index() -> Iterator[Index]:
    with package_index() as found:
        yield found


@pytest.fixture
def install(tmp_path: Path, index: Index) -> Install:
    uv = find_uv()
    assert uv is not None

    def installed(
        *requirements: str,
        lock: str = "",
        sources: bool = False,
        index_url: str = "",
        proxy: OutboundProxy | None = None,
    ) -> StoredEnvironment:
        packages = Packages(requirements=requirements, lock=lock, allow_source_builds=sources)
        request = EnvironmentRequest(
            packages=packages,
            interpreter=own_interpreter(),
            index_url=index_url or index.url,
            project="one",
            uv=uv.version,
        )
        builder = Builder(
            program=uv.path,
            settings=PackagesSettings(),
            fetch_allow=("127.0.0.1",) if proxy is None else (),
            fetch_proxy=proxy,
            sandbox=choose_sandbox(),
            data_dir=tmp_path / "data",
        )
        return EnvironmentStore(directory=tmp_path / "data/cache", cache_bytes=1 << 40).provide(request, builder)

    return installed


def built(index: Index, install: Install, attack: str) -> StoredEnvironment:
    index.files["made-1.tar.gz"] = source("made", "1", BACKEND.replace("ATTACK", attack.replace("\n", "\n    ")))
    return install("made", sources=True)


def said(stored: StoredEnvironment) -> str:
    (module,) = stored.path.glob("lib/python*/site-packages/made/__init__.py")
    return module.read_text()


def test_installing_a_wheel_runs_none_of_its_code(index: Index, install: Install) -> None:
    runs = "import os, sys; open(os.path.join(sys.prefix, 'ran'), 'w').close()\n"
    index.files["quiet-1-py3-none-any.whl"] = wheel("quiet", "1", beside={"quiet.pth": runs})

    stored = install("quiet")

    assert list(stored.path.glob("lib/python*/site-packages/quiet.pth"))
    assert list(stored.path.glob("lib/python*/site-packages/quiet/__pycache__/*.pyc"))
    assert sorted(path.name for path in stored.path.parent.iterdir()) == ["env", "packages.json"]
    assert not (stored.path / "ran").exists()


@pytest.mark.long
@pytest.mark.parametrize(
    "attack",
    [
        "os.rename(top + '/env', top + '/real'); os.symlink('real', top + '/env')",
        "os.rename(top + '/env/lib', top + '/lib'); os.symlink('../lib', top + '/env/lib')",
        "os.symlink('/', top + '/env/all')",
        "os.mkfifo(top + '/env/pipe')",
        "os.remove(top + '/env/bin/python3'); os.symlink('/bin/sh', top + '/env/bin/python3')",
    ],
)
def test_environment_that_a_build_has_replaced_is_refused(
    tmp_path: Path, index: Index, install: Install, attack: str
) -> None:
    with pytest.raises(AttemptFailed, match="what was installed is refused") as refused:
        built(index, install, attack)

    assert refused.value.error_type == "PACKAGES_FAILED"
    assert list((tmp_path / "data/cache").glob("*/env")) == []


@pytest.mark.long
def test_no_process_of_a_build_is_left(tmp_path: Path, index: Index, install: Install) -> None:
    word = f"left-{tmp_path.name}"
    command = f"['sh', '-c', 'sleep 60; true', '{word}']"
    attack = f"if os.fork() == 0: os.setsid(); os.closerange(0, 64); os.execvp('sh', {command})"

    built(index, install, attack)

    running = [path for path in Path("/proc").glob("[0-9]*/cmdline") if word in _read(path)]
    assert running == []


@pytest.mark.long
def test_directories_in_each_other_are_deleted_after_a_build(tmp_path: Path, index: Index, install: Install) -> None:
    deep = "os.mkdir('d'); os.chdir('d')"
    built(index, install, f"here = os.getcwd(); os.chdir(top)\nfor _ in range(1500): {deep}\nos.chdir(here)")

    assert list((tmp_path / "data/cache/new").iterdir()) == []


@pytest.mark.parametrize("sources", [False, True])
def test_node_with_a_proxy_installs_nothing(
    index: Index, install: Install, monkeypatch: pytest.MonkeyPatch, *, sources: bool
) -> None:
    """What it reaches, an index could lead uv to."""
    index.add("greeting", "1")
    monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{index.port}")

    with pytest.raises(AttemptFailed, match=re.escape("through a proxy (https_proxy)")):
        install("greeting", sources=sources)

    assert index.asked == []


def test_node_installs_through_the_proxy_of_the_operator(
    index: Index, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.add("greeting", "1")
    with company_proxy() as company:
        monkeypatch.setenv("https_proxy", company.url)
        proxy = OutboundProxy(host="127.0.0.1", port=int(company.url.rpartition(":")[2]))

        stored = install("greeting", index_url=index.url.replace("127.0.0.1", "index.example.org"), proxy=proxy)

        assert list(stored.path.glob("lib/python*/site-packages/greeting/__init__.py"))
        assert {*company.asked} == {f"index.example.org:{index.port}"}
        with pytest.raises(AttemptFailed, match="leads to a private address"):
            install("greeting", lock="", index_url=index.url, proxy=proxy)


def test_requirement_can_not_have_a_line_with_an_option(index: Index, install: Install) -> None:
    index.add("greeting", "1")
    url = f"http://127.0.0.1:{index.port}/files/greeting-1-py3-none-any.whl"

    with pytest.raises(AttemptFailed, match="would change its meaning") as refused:
        install(f"greeting @ {url}\n--no-binary=:all:")

    assert refused.value.error_type == "INVALID_CONFIG"
    assert index.asked == []


@pytest.mark.long
def test_memory_and_files_of_a_build_are_limited(
    index: Index, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.prepare.packages.uv_process.MEMORY_BYTES", 1 << 30)
    attack = """try:
    bytearray(2 << 30); said = "had it"
except MemoryError:
    said = f"refused, {resource.getrlimit(resource.RLIMIT_FSIZE)[1]}"
"""
    assert f"refused, {PackagesSettings().max_bytes}" in said(built(index, install, attack))


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
