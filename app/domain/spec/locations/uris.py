"""URI schemes: what each may be used for, and the form of its URIs."""

import re
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import unquote

from app.domain.errors import BadSpec
from app.domain.spec.locations.hosts import authority_of, refuse_private_host
from app.domain.suggestions import did_you_mean


class Use(StrEnum):
    """Purpose of a URI in a job document."""

    DATA = "data"
    MODEL = "a model"
    OUTPUT = "output"
    CODE = "code"


@dataclass(frozen=True, kw_only=True)
class Scheme:
    """``forms``: for each use, the pattern of the part after ``scheme://`` and the form in words."""

    kind: str
    forms: dict[Use, tuple[re.Pattern[str], str]]
    lists: bool = False  # patterns can be resolved, as directories can
    is_web: bool = False
    refusals: dict[Use, str]  # for unsupported uses: why, and the alternative


_SEGMENTS = r"[^/]+(?:/[^/]+)*"
_NAME = r"[A-Za-z0-9][\w.-]{0,95}"
# As in git, names don't begin with a dash or dot and have no two dots in a row.
_REVISION = r"(?:@(?![-.]|[\w.%/-]*\.\.)(?:refs/[\w.-]{1,100}/[\w.-]{1,100}|(?:[\w.-]|%2[Ff]){1,255}))?"
_BUCKET = r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}"
_CID = r"(?:Qm[1-9A-HJ-NP-Za-km-z]{44}|[bk][a-z0-9]{20,200}|z[1-9A-HJ-NP-Za-km-z]{20,200})"
_CLAIM = r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?"
_SHARE = r"[A-Za-z0-9][\w.-]{0,254}"

_NO_LISTING = (
    "it names single files, and a model is a directory; use s3://, hf://, pvc://, scaidrive:// or a local directory"
)
_NO_CODE = "code lies in a local directory, or behind s3://, oci://, obs:// or pvc://"
_NOT_WRITABLE = "nothing can be written there; use a local directory, s3://, oci://, obs://, pvc:// or scaidrive://"


def _form(pattern: str, words: str) -> tuple[re.Pattern[str], str]:
    return re.compile(pattern, re.ASCII | re.DOTALL), words


def _object_store(scheme: str) -> Scheme:
    form = _form(rf"{_BUCKET}/{_SEGMENTS}/?", f"{scheme}://bucket/key")
    return Scheme(kind=scheme, lists=True, forms=dict.fromkeys(Use, form), refusals={})


def _drive(scheme: str) -> Scheme:
    form = _form(rf"{_SHARE}/{_SEGMENTS}/?", f"{scheme}://share/path")
    data = _form(form[0].pattern, f"{scheme}://share/file, or {scheme}://share/directory/ for the files in it")
    forms = {Use.DATA: data, Use.MODEL: form, Use.OUTPUT: form}
    return Scheme(kind=scheme, forms=forms, refusals={Use.CODE: _NO_CODE})


def _web(scheme: str) -> Scheme:
    form = _form(r"[^/?#]+/[^?#]*[^/?#](?:\?[^#]*)?", f"{scheme}://host/file, without a #part")
    refusals = {Use.MODEL: _NO_LISTING, Use.CODE: _NO_CODE, Use.OUTPUT: _NOT_WRITABLE}
    return Scheme(kind="http", is_web=True, forms={Use.DATA: form}, refusals=refusals)


SCHEMES: dict[str, Scheme] = {
    "http": _web("http"),
    "https": _web("https"),
    "s3": _object_store("s3"),
    "oci": _object_store("oci"),
    "obs": _object_store("obs"),
    "pvc": Scheme(
        kind="pvc",
        lists=True,
        refusals={},
        forms=dict.fromkeys(Use, _form(rf"{_CLAIM}/{_SEGMENTS}/?", "pvc://claim/path")),
    ),
    "ipfs": Scheme(
        kind="ipfs",
        forms={Use.DATA: _form(rf"{_CID}(?:/{_SEGMENTS})?", "ipfs://cid or ipfs://cid/path")},
        refusals={Use.MODEL: _NO_LISTING, Use.CODE: _NO_CODE, Use.OUTPUT: _NOT_WRITABLE},
    ),
    "hf": Scheme(
        kind="hf",
        lists=True,
        forms={
            Use.DATA: _form(
                rf"datasets/{_NAME}/{_NAME}{_REVISION}(?:/{_SEGMENTS})?/?",
                "hf://datasets/owner/name, with @revision and /path if you like",
            ),
            Use.MODEL: _form(
                rf"(?!datasets/|spaces/){_NAME}/{_NAME}{_REVISION}/?", "hf://owner/name, with @revision if you like"
            ),
        },
        refusals={Use.CODE: _NO_CODE, Use.OUTPUT: "to publish a model on a hub set push_to_hub and hub_repo_id"},
    ),
    "scaidrive": _drive("scaidrive"),
    "scaiatlas": _drive("scaiatlas"),
}

_CONTROLS = re.compile(r"[\x00-\x1f\x7f\\]")
_WILD = re.compile(r"[*?\[\]]")
_DOTTED_QUAD = re.compile(r"[0-9]+(?:\.[0-9]+){3}")


def check_uri(uri: str, use: Use, allow: tuple[str, ...], *, field: str) -> None:
    """Raise BadSpec for a malformed URI, or a scheme that does not support the use."""
    name, _, rest = uri.partition(":")
    scheme = scheme_of(name, field=field)
    if use in scheme.refusals:
        raise BadSpec(f"{name.lower()}:// is not for {use}: {scheme.refusals[use]}", field=field)
    _refuse_credentials(uri, field=field)
    if scheme.is_web:
        refuse_private_host(uri, allow, field=field)
    path = rest.partition("?")[0] if scheme.is_web else rest
    _refuse_way_up(path, field=field)
    if _WILD.search(path.removeprefix(f"//{authority_of(uri)}")) and not (scheme.lists and use is Use.DATA):
        raise BadSpec(
            f"*, ? and [ ] stand for files only in data sources of local directories and of {_listing()}; name each "
            "file as a source of its own, or write the characters as %2A, %3F, %5B and %5D",
            field=field,
        )
    pattern, words = scheme.forms[use]
    if _CONTROLS.search(uri) or pattern.fullmatch(rest.removeprefix("//")) is None or not rest.startswith("//"):
        raise BadSpec(f"the URI is malformed; the form for {use} is {words}", field=field)
    if not scheme.is_web and _DOTTED_QUAD.fullmatch(authority_of(uri)):
        raise BadSpec(f"the form is {words}, not an address; the operator configures where that is", field=field)


def scheme_of(name: str, *, field: str) -> Scheme:
    found = SCHEMES.get(name.lower())
    if found is None:
        known = ", ".join(f"{each}://" for each in ("file", *SCHEMES))
        meant = did_you_mean(name, SCHEMES)
        raise BadSpec(f"unknown scheme {name[:32]!r}{meant}; known: a bare path, {known}", field=field)
    return found


def _refuse_credentials(uri: str, *, field: str) -> None:
    if "@" in unquote(authority_of(uri)):
        raise BadSpec(
            "a URI holds no user or password, which all users of the project would see; the operator configures "
            "the credentials of a storage, and those of a user come in a header of the request",
            field=field,
        )


def _refuse_way_up(path: str, *, field: str) -> None:
    if leads_up(path) or leads_up(unquote(path)):
        raise BadSpec("the path leads up by ..; write it without", field=field)


def leads_up(path: str) -> bool:
    """Whether a segment of the path is ``..``."""
    return ".." in re.split(r"[/\\]", path)


def _listing() -> str:
    return ", ".join(f"{name}://" for name, scheme in SCHEMES.items() if scheme.lists)
