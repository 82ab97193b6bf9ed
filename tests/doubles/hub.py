"""A real HTTP server that speaks the Hugging Face hub's API, as far as huggingface_hub reads, writes and lists with it.

``with running_hub() as hub:`` and then HF_ENDPOINT=hub.url, HF_HUB_DISABLE_XET=1 (it has no Xet storage). Files are
added with ``hub.add``, faults with ``hub.fail``, ``hub.stall`` and ``hub.cut``; what was asked stands in ``hub.seen``.
"""

import hashlib
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.doubles.hub_handler import Fault, Listener, Seen
from tests.doubles.hub_repositories import MAIN, Account, Blob, Commit, Repositories, Repository

OWNER = "acme"
TOKEN = "hf_owner"  # may write what is OWNER's
READ_TOKEN = "hf_reader"  # the same account, reading only
STRANGER_TOKEN = "hf_stranger"


class Hub:
    """Repositories behind HTTP; everything lies in memory and is gone with the server."""

    def __init__(self) -> None:
        self.url = ""
        self.elsewhere = ""  # whence large files come: another origin, as with the real hub
        self.repositories = Repositories()
        self.repositories.accounts = {
            TOKEN: Account(OWNER, organizations=("acme-labs",)),
            READ_TOKEN: Account(OWNER, may_write=False),
            STRANGER_TOKEN: Account("stranger"),
        }
        self.page_size = 1000  # entries of a listing in one answer
        self.part_bytes = 4 << 20  # larger objects are uploaded in parts
        self.seen: list[Seen] = []
        self.faults: list[Fault] = []
        self.closing = threading.Event()
        self.stalled = threading.Event()  # a request hangs

    def add(
        self,
        name: str,
        files: Mapping[str, bytes] | Path,
        *,
        dataset: bool = False,
        private: bool = False,
        gated: bool = False,
        branch: str = MAIN,
    ) -> str:
        """Put files (or those of a directory) into a repository, made when it is not there; the new commit's id."""
        if isinstance(files, Path):
            files = {str(p.relative_to(files)): p.read_bytes() for p in sorted(files.rglob("*")) if p.is_file()}
        kind = "datasets" if dataset else "models"
        known = self.repositories
        repository = known.get(kind, name) or known.add(Repository(kind, name, private, gated))
        before = repository.at(repository.refs.get(branch, repository.refs[MAIN])).files
        blobs = {path: known.blob(path, data) for path, data in files.items()}
        return repository.commit("files of a test", {**before, **blobs}, branch).oid

    def head(self, name: str, *, dataset: bool = False, revision: str = MAIN) -> Commit:
        """The newest commit. Raises HubError."""
        return self.repository(name, dataset=dataset).at(revision)

    def files(self, name: str, *, dataset: bool = False, revision: str = MAIN) -> dict[str, bytes]:
        """What the repository holds now."""
        return {path: blob.data for path, blob in self.head(name, dataset=dataset, revision=revision).files.items()}

    def repository(self, name: str, *, dataset: bool = False) -> Repository:
        repository = self.repositories.get("datasets" if dataset else "models", name)
        assert repository is not None, f"no repository {name}"
        return repository

    def spoil(self, name: str, path: str, data: bytes, *, dataset: bool = False) -> None:
        """Have the hub hold other bytes than it was given, under the same commit."""
        self.head(name, dataset=dataset).files[path] = Blob(data, large=True)
        self.repositories.objects[hashlib.sha256(data).hexdigest()] = data

    def fail(self, pattern: str, status: int, *, times: int = 1, code: str = "") -> None:
        """Answer with an error status; ``code`` as the hub's X-Error-Code, such as GatedRepo."""
        self.faults.append(Fault(re.compile(pattern), times, status=status, code=code))

    def stall(self, pattern: str, *, times: int = 1) -> None:
        """Take the request and say nothing, until the server ends."""
        self.faults.append(Fault(re.compile(pattern), times, stalls=True))

    def cut(self, pattern: str, at: int, *, times: int = 1) -> None:
        """Close the connection after that many bytes of the answer's body."""
        self.faults.append(Fault(re.compile(pattern), times, cut_at=at))

    def fault_of(self, method: str, path: str) -> Fault | None:
        """The fault that this request has to suffer, counted down."""
        with self.repositories.lock:
            for fault in self.faults:
                if fault.times > 0 and fault.pattern.search(f"{method} {path}"):
                    fault.times -= 1
                    return fault
        return None

    def asked(self, pattern: str) -> list[Seen]:
        """The requests whose "METHOD /path" the pattern finds."""
        return [seen for seen in self.seen if re.search(pattern, f"{seen.method} {seen.path}")]


@contextmanager
def running_hub() -> Iterator[Hub]:
    """A hub that answers while the block runs."""
    hub = Hub()
    with Listener(hub) as main, Listener(hub) as elsewhere:
        hub.url, hub.elsewhere = main.url, elsewhere.url
        listeners = (main, elsewhere)
        threads = [threading.Thread(target=each.serve_forever, kwargs={"poll_interval": 0.01}) for each in listeners]
        for thread in threads:
            thread.start()
        try:
            yield hub
        finally:
            hub.closing.set()
            for each in listeners:
                each.shutdown()
            for thread in threads:
                thread.join()
