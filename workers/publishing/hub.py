"""Pushes a model to a Hugging Face hub with the hub's own client, and verifies the commit.

That client reads HF_ENDPOINT, and HF_TOKEN where the job brings no token.
"""

import glob
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx2
from huggingface_hub import HfApi, get_token
from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils.sha import git_hash

from workers.publishing.failures import NotPublished
from workers.publishing.orders import PublishedFile, PublishOrder

PASSING = frozenset({408, 409, 412, 425, 429, 500, 502, 503, 504})
LEFT_OUT = frozenset({".git", ".cache"})  # folders that the client never uploads


@dataclass(frozen=True, kw_only=True)
class HubRepository:
    """A repository on the hub; ``token`` is the job's, empty for the node's own."""

    name: str
    private: bool
    token: str = ""


def check(repository: HubRepository) -> None:
    """Check, as far as the hub reports it, that the token may write there. Raises NotPublished."""
    with _explaining(repository):
        who = _api(repository).whoami()
    access = who.get("auth", {}).get("accessToken", {})
    if access.get("role") == "read":
        raise NotPublished(f"the token of {who.get('name')} is read-only; give one that may write to {repository.name}")
    names = {who.get("name"), *(each.get("name") for each in who.get("orgs", ()))}
    owner = repository.name.partition("/")[0]
    if access.get("role") == "write" and owner not in names:
        raise NotPublished(
            f"the token belongs to {who.get('name')}, who is no member of {owner}; give a token of a member"
        )


def push(repository: HubRepository, order: PublishOrder) -> str:
    """Push the model, creating the repository if necessary; returns its URL. Raises NotPublished."""
    api = _api(repository)
    files = [file for file in order.files if not LEFT_OUT & set(file.path.split("/"))]
    with _explaining(repository):
        url = api.create_repo(repository.name, private=repository.private, exist_ok=True)
        commit = api.upload_folder(
            repo_id=repository.name,
            folder_path=order.source,
            commit_message=f"Trained by job {order.job_id} ({order.job_name})",
            allow_patterns=[glob.escape(file.path) for file in files],
        )
        held = {each.path: each for each in api.list_repo_tree(repository.name, recursive=True, revision=commit.oid)}
    for file in files:
        if not _is_same(held.get(file.path), file, order):
            message = f"{file.path} on the hub does not match what was sent, by size or digest"
            raise NotPublished(message, transient=True)
    return str(url)


def _is_same(held: object, file: PublishedFile, order: PublishOrder) -> bool:
    """Large files are identified by their SHA-256, others by their git blob id."""
    if not isinstance(held, RepoFile) or held.size != file.size_bytes:
        return False
    if held.lfs is not None:
        return held.lfs.sha256 == file.sha256
    return held.blob_id == git_hash((order.source / file.path).read_bytes())


def _api(repository: HubRepository) -> HfApi:
    if not repository.token and get_token() is None:
        raise NotPublished(
            "there is no token; give output_config.hub_token, or have the administrator set HF_TOKEN on the nodes"
        )
    return HfApi(token=repository.token or None, library_name="trainyard")


@contextmanager
def _explaining(repository: HubRepository) -> Iterator[None]:
    try:
        yield
    except OfflineModeIsEnabled as error:
        raise NotPublished("HF_HUB_OFFLINE is set on this node; have the administrator unset it") from error
    except Exception as error:
        # Upload threads wrap the original exception.
        answer = next((each for each in _causes(error) if isinstance(each, HfHubHTTPError)), None)
        if answer is not None:
            status = answer.response.status_code
            message = f"{repository.name}: the hub answers {status}: {answer.server_message or _first_line(answer)}"
            raise NotPublished(f"{message}{_way_out(status)}", transient=status in PASSING) from error
        if any(isinstance(each, httpx2.HTTPError | OSError) for each in _causes(error)):
            raise NotPublished(f"{repository.name}: the hub can't be reached: {error}", transient=True) from error
        raise NotPublished(f"{repository.name}: {error}") from error


def _causes(error: BaseException) -> Iterator[BaseException]:
    following: BaseException | None = error
    while following is not None:
        yield following
        following = following.__cause__ or following.__context__


def _way_out(status: int) -> str:
    if status in (401, 403):
        return "; give output_config.hub_token a token that may write there"
    if status == 404:
        return "; name a repository that exists or that its token may create"
    return ""


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
