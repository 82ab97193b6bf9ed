"""The requests that the hub of the tests answers: paths, headers and shapes as huggingface.co has them."""

import base64
import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.doubles.hub_repositories import Account, Blob, HubError, Repository, is_large, listing

if TYPE_CHECKING:
    from tests.doubles.hub import Hub

BLOCK_BYTES = 1 << 20
COMMIT = re.compile(r"[0-9a-f]{40}")
REPOSITORY = r"(?P<kind>models|datasets)/(?P<name>[^/]+/[^/]+)"
FILES_OF = r"/(?P<prefix>datasets/)?(?P<name>[^/]+/[^/]+)"


@dataclass(frozen=True)
class Seen:
    """One request, as the server heard it."""

    method: str
    path: str
    token: str
    body: bytes


@dataclass
class Fault:
    """What happens to the next ``times`` requests whose "METHOD /path" the pattern finds."""

    pattern: re.Pattern[str]
    times: int
    status: int = 0
    code: str = ""
    stalls: bool = False
    cut_at: int | None = None


class Listener(ThreadingHTTPServer):
    """One port of the hub."""

    daemon_threads = True

    def __init__(self, hub: "Hub") -> None:
        super().__init__(("127.0.0.1", 0), HubHandler)
        self.hub = hub

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class HubHandler(BaseHTTPRequestHandler):
    """One request; a new connection for each, so that no thread outlives its server."""

    server: "Listener"

    def do_GET(self) -> None:
        self.hub = self.server.hub
        url = urlsplit(self.path)
        self.query = parse_qs(url.query)
        self.body = self._read_body()
        authorization = self.headers.get("Authorization") or ""
        self.token = authorization.removeprefix("Bearer ")
        self.hub.seen.append(Seen(self.command, unquote(url.path), self.token, self.body))
        self.fault = self.hub.fault_of(self.command, unquote(url.path))
        try:
            self._suffer()
            self._route(url.path)
        except HubError as error:
            headers = {"X-Error-Message": error.message} | ({"X-Error-Code": error.code} if error.code else {})
            self.reply(error.status, json.dumps({"error": error.message}).encode(), **headers)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # the client gave up

    do_HEAD = do_POST = do_PUT = do_GET  # noqa: N815 – the base class calls them by these names

    def reply(self, status: int, body: bytes, kind: str = "application/json", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            cut = self.fault.cut_at if self.fault is not None else None
            self.wfile.write(body[:cut])

    def reply_json(self, document: Any, **headers: str) -> None:
        self.reply(200, json.dumps(document).encode(), **headers)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 – the base class names it so
        pass

    def _suffer(self) -> None:
        if self.fault is not None and self.fault.stalls:
            self.hub.stalled.set()
            self.hub.closing.wait()
            raise BrokenPipeError
        if self.fault is not None and self.fault.status:
            raise HubError(self.fault.status, "a fault of the test", self.fault.code)

    def _read_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _route(self, path: str) -> None:
        method = "GET" if self.command == "HEAD" else self.command
        for wanted, pattern, answer in ROUTES:
            found = pattern.fullmatch(path)
            if wanted == method and found is not None:
                answer(self, **{name: unquote(value or "") for name, value in found.groupdict().items()})
                return
        raise HubError(404, f"Sorry, we can't find the page you are looking for: {path}")

    # ---- who asks

    def _account(self) -> Account | None:
        if not self.token:
            return None
        account = self.hub.repositories.accounts.get(self.token)
        if account is None:
            raise HubError(401, "Invalid credentials in Authorization header")
        return account

    def _visible(self, kind: str, name: str) -> Repository:
        return self.hub.repositories.visible(kind, name, self._account())

    def _writable(self, kind: str, name: str) -> Repository:
        return self.hub.repositories.writable(kind, name, self._account())

    # ---- reading

    def whoami(self) -> None:
        account = self._account()
        if account is None:
            raise HubError(401, "Invalid username or password.")
        role = "write" if account.may_write else "read"
        self.reply_json(
            {
                "type": "user",
                "id": account.name,
                "name": account.name,
                "fullname": account.name,
                "orgs": [{"type": "org", "name": name} for name in account.organizations],
                "auth": {"type": "access_token", "accessToken": {"displayName": "test", "role": role}},
            }
        )

    def info(self, kind: str, name: str, revision: str = "") -> None:
        repository = self._visible(kind, name)
        commit = repository.at(revision or "main")
        siblings = [{"rfilename": path} | self._details(blob) for path, blob in sorted(commit.files.items())]
        self.reply_json(
            {
                "_id": name,
                "id": name,
                "sha": commit.oid,
                "private": repository.private,
                "author": name.partition("/")[0],
                "gated": "auto" if repository.gated else False,
                "disabled": False,
                "tags": [],
                "downloads": 0,
                "likes": 0,
                "siblings": siblings,
                "createdAt": "2026-01-01T00:00:00.000Z",
                "lastModified": "2026-01-01T00:00:00.000Z",
            }
        )

    def _details(self, blob: Blob) -> dict[str, Any]:
        if "blobs" not in self.query:
            return {}
        details: dict[str, Any] = {"size": len(blob.data), "blobId": blob.oid}
        if blob.large:
            details["lfs"] = {"sha256": blob.sha256, "size": len(blob.data), "pointerSize": len(blob.pointer)}
        return details

    def tree(self, kind: str, name: str, revision: str, folder: str = "") -> None:
        recursive = self.query.get("recursive", ["false"])[0].lower() in ("true", "1")
        entries = list(listing(self._visible(kind, name).at(revision).files, folder, recursive=recursive))
        start = int(self.query.get("cursor", ["0"])[0])
        end = start + self.hub.page_size
        more = {}
        if end < len(entries):
            url = f"{self.hub.url}{urlsplit(self.path).path}?recursive={recursive}&cursor={end}"
            more = {"Link": f'<{url}>; rel="next"'}
        self.reply_json(entries[start:end], **more)

    def paths_info(self, kind: str, name: str, revision: str) -> None:
        files = self._visible(kind, name).at(revision).files
        wanted = parse_qs(self.body.decode()).get("paths", [])
        self.reply_json([files[path].entry(path) for path in wanted if path in files])

    def refs(self, kind: str, name: str) -> None:
        refs = self._visible(kind, name).refs
        branches = [{"name": ref, "ref": f"refs/heads/{ref}", "targetCommit": oid} for ref, oid in refs.items()]
        self.reply_json({"branches": branches, "tags": [], "converts": []})

    def resolve(self, prefix: str, name: str, revision: str, path: str) -> None:
        repository = self._visible("datasets" if prefix else "models", name)
        account = self._account()
        if repository.gated and not (account is not None and account.owns(name)):
            raise HubError(401 if account is None else 403, f"Access to {name} is restricted.", "GatedRepo")
        commit = repository.at(revision)
        blob = commit.files.get(path)
        headers = {"X-Repo-Commit": commit.oid}
        if blob is None:
            raise HubError(404, "Entry not found", "EntryNotFound")
        if not blob.large:
            self._reply_file(blob, **headers)
            return
        # As with the real one: large files come from elsewhere, and no token may go there.
        headers |= {"X-Linked-Etag": f'"{blob.etag}"', "X-Linked-Size": str(len(blob.data))}
        self.reply(302, b"", Location=f"{self.hub.elsewhere}/objects/{blob.sha256}", **headers)

    def object(self, oid: str) -> None:
        data = self.hub.repositories.objects.get(oid)
        if data is None:
            raise HubError(404, "no such object")
        self._reply_file(Blob(data, large=True))

    def _reply_file(self, blob: Blob, **headers: str) -> None:
        headers |= {"ETag": f'"{blob.etag}"', "Accept-Ranges": "bytes"}
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        if wanted is None:
            self.reply(200, blob.data, "application/octet-stream", **headers)
            return
        size, start = len(blob.data), int(wanted[1])
        if start >= size:
            self.reply(416, b"", **{"Content-Range": f"bytes */{size}"})
            return
        end = min(int(wanted[2] or size - 1), size - 1)
        headers["Content-Range"] = f"bytes {start}-{end}/{size}"
        self.reply(206, blob.data[start : end + 1], "application/octet-stream", **headers)

    # ---- writing

    def create(self) -> None:
        asked, account = json.loads(self.body), self._account()
        if account is None:
            raise HubError(401, "Invalid username or password.")
        name = f"{asked.get('organization') or account.name}/{asked['name']}"
        kind = f"{asked.get('type') or 'model'}s"
        if not account.may_write or not account.owns(name):
            raise HubError(403, f"You don't have the rights to create a {kind[:-1]} under this namespace")
        url = f"{self.hub.url}/{'datasets/' if kind == 'datasets' else ''}{name}"
        private = asked.get("visibility") == "private" or bool(asked.get("private"))
        try:
            self.hub.repositories.add(Repository(kind, name, private=private))
        except HubError as error:
            self.reply(error.status, json.dumps({"error": error.message, "url": url, "name": name}).encode())
            return
        self.reply_json({"url": url, "name": name, "id": name})

    def validate(self) -> None:
        content = json.loads(self.body)["content"]
        if content.startswith("---\n") and "\n---" not in content[4:]:
            self.reply(400, json.dumps({"errors": [{"message": "the metadata never ends"}], "warnings": []}).encode())
            return
        self.reply_json({"errors": [], "warnings": []})

    def preupload(self, kind: str, name: str, revision: str) -> None:
        files = self._writable(kind, name).at(revision).files
        answers = []
        for asked in json.loads(self.body)["files"]:
            large = is_large(asked["path"], asked["size"], base64.b64decode(asked["sample"]))
            known = files.get(asked["path"])
            answers.append(
                {
                    "path": asked["path"],
                    "uploadMode": "lfs" if large else "regular",
                    "shouldIgnore": False,
                    "oid": known.etag if known is not None else None,
                }
            )
        self.reply_json({"files": answers})

    def batch(self, prefix: str, name: str) -> None:
        self._writable("datasets" if prefix else "models", name)
        asked = json.loads(self.body)["objects"]
        self.reply_json(
            {"transfer": "basic", "objects": [self._upload_of(name, each["oid"], each["size"]) for each in asked]}
        )

    def _upload_of(self, name: str, oid: str, size: int) -> dict[str, Any]:
        answer = {"oid": oid, "size": size}
        if oid in self.hub.repositories.objects:
            return answer
        url, step = self.hub.url, self.hub.part_bytes
        upload: dict[str, Any] = {"href": f"{url}/upload/{oid}"}
        if size > step:
            parts = {str(n + 1): f"{url}/upload/{oid}/{n + 1}" for n in range(-(-size // step))}
            upload = {"href": f"{url}/complete/{oid}", "header": {"chunk_size": str(step), **parts}}
        return answer | {"actions": {"upload": upload, "verify": {"href": f"{url}/verify/{name}"}}}

    def upload(self, oid: str) -> None:
        if hashlib.sha256(self.body).hexdigest() != oid:
            raise HubError(400, "the content does not match the oid")
        self.hub.repositories.objects[oid] = self.body
        self.reply(200, b"", ETag=f'"{oid}"')

    def upload_part(self, oid: str, number: str) -> None:
        self.hub.repositories.parts[oid, int(number)] = self.body
        self.reply(200, b"", ETag=f'"{hashlib.md5(self.body, usedforsecurity=False).hexdigest()}"')

    def complete(self, oid: str) -> None:
        parts = self.hub.repositories.parts
        numbers = [part["partNumber"] for part in json.loads(self.body)["parts"]]
        self.body = b"".join(parts[oid, number] for number in numbers)
        self.upload(oid)

    def verify(self, name: str) -> None:
        self._account()
        asked = json.loads(self.body)
        if len(self.hub.repositories.stored(asked["oid"])) != asked["size"]:
            raise HubError(400, f"{name}: the size does not match")
        self.reply_json({})

    def commit(self, kind: str, name: str, revision: str) -> None:
        repository = self._writable(kind, name)
        lines = [json.loads(line) for line in self.body.splitlines()]
        header = next(line["value"] for line in lines if line["key"] == "header")
        with self.hub.repositories.lock:
            before = repository.at(revision)
            if header.get("parentCommit") not in (None, before.oid):
                raise HubError(412, "A commit has happened since. Please refresh and try again.")
            files = dict(before.files)
            for line in lines:
                _apply(self.hub.repositories.stored, files, line["key"], line["value"])
            made = repository.commit(header["summary"], files, revision)
        url = f"{self.hub.url}/{'datasets/' if kind == 'datasets' else ''}{name}/commit/{made.oid}"
        self.reply_json({"success": True, "commitOid": made.oid, "commitUrl": url, "hookOutput": ""})


def _apply(stored: Callable[[str], bytes], files: dict[str, Blob], key: str, value: dict[str, Any]) -> None:
    if key == "file":
        files[value["path"]] = Blob(base64.b64decode(value["content"]), large=False)
    elif key == "lfsFile":
        files[value["path"]] = Blob(stored(value["oid"]), large=True)
    elif key == "deletedFile":
        if files.pop(value["path"], None) is None:
            raise HubError(400, f"A file with this name doesn't exist: {value['path']}")
    elif key == "deletedFolder":
        for path in [path for path in files if path.startswith(value["path"].rstrip("/") + "/")]:
            del files[path]
    elif key != "header":
        raise HubError(400, f"unknown operation {key}")


def _routes(*routes: tuple[str, str, Callable[..., None]]) -> list[tuple[str, re.Pattern[str], Callable[..., None]]]:
    return [(method, re.compile(pattern), answer) for method, pattern, answer in routes]


ROUTES = _routes(
    ("GET", "/api/whoami-v2", HubHandler.whoami),
    ("GET", f"/api/{REPOSITORY}", HubHandler.info),
    ("GET", f"/api/{REPOSITORY}/revision/(?P<revision>[^/]+)", HubHandler.info),
    ("GET", f"/api/{REPOSITORY}/tree/(?P<revision>[^/]+)(?:/(?P<folder>.+))?", HubHandler.tree),
    ("POST", f"/api/{REPOSITORY}/paths-info/(?P<revision>[^/]+)", HubHandler.paths_info),
    ("GET", f"/api/{REPOSITORY}/refs", HubHandler.refs),
    ("GET", FILES_OF + "/resolve/(?P<revision>[^/]+)/(?P<path>.+)", HubHandler.resolve),
    ("GET", "/objects/(?P<oid>[0-9a-f]+)", HubHandler.object),
    ("POST", "/api/repos/create", HubHandler.create),
    ("POST", "/api/validate-yaml", HubHandler.validate),
    ("POST", f"/api/{REPOSITORY}/preupload/(?P<revision>[^/]+)", HubHandler.preupload),
    ("POST", FILES_OF + r"\.git/info/lfs/objects/batch", HubHandler.batch),
    ("PUT", "/upload/(?P<oid>[0-9a-f]+)", HubHandler.upload),
    ("PUT", r"/upload/(?P<oid>[0-9a-f]+)/(?P<number>\d+)", HubHandler.upload_part),
    ("POST", "/complete/(?P<oid>[0-9a-f]+)", HubHandler.complete),
    ("POST", "/verify/(?P<name>.+)", HubHandler.verify),
    ("POST", f"/api/{REPOSITORY}/commit/(?P<revision>[^/]+)", HubHandler.commit),
)
