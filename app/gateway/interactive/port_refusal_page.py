"""What a browser shows instead of a page of a port: why there is none, and the way in."""

import base64
import hashlib
from html import escape
from http import HTTPStatus

from tornado.httputil import HTTPHeaders

# The colours of the dashboard.
_STYLE = """
:root { color-scheme: light dark; }
body { margin: 0 auto; max-width: 44rem; padding: 8vh 1.25rem 2rem; font: 16px/1.5 system-ui, sans-serif;
  background: light-dark(#fff, #10151c); color: light-dark(#17202b, #e6ebf2); overflow-wrap: anywhere; }
h1 { font-size: 1.4rem; line-height: 1.25; }
pre { background: light-dark(#f4f6f9, #19212b); border: 1px solid light-dark(#d4dae2, #303b49); border-radius: 6px;
  padding: .75rem; white-space: pre-wrap; }
a { display: inline-block; padding: .4rem .9rem; border-radius: 6px; text-decoration: none;
  background: light-dark(#0b5cc4, #6fb0ff); color: light-dark(#fff, #0b1420); }
:focus-visible { outline: 2px solid light-dark(#0b5cc4, #6fb0ff); outline-offset: 2px; }
footer { margin-top: 2.5rem; font-size: .85rem; color: light-dark(#566172, #a3afbf); }
"""
_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
POLICY = f"default-src 'none'; style-src 'sha256-{_HASH}'; frame-ancestors 'none'; form-action 'none'; sandbox"
_TITLES = {
    HTTPStatus.UNAUTHORIZED: "This port of a job needs a token",
    HTTPStatus.FORBIDDEN: "This port is not open to you",
    HTTPStatus.NOT_FOUND: "There is no such port here",
    HTTPStatus.BAD_GATEWAY: "The job does not answer",
    HTTPStatus.SERVICE_UNAVAILABLE: "This port is not open now",
}
_INDENT = "    "  # of commands in a reason


def wants_page(headers: HTTPHeaders) -> bool:
    """Whether a person reads the answer, as far as a request says it."""
    return "text/html" in headers.get("Accept", "").lower()


def page(status: int, reason: str, *, way_in: str) -> str:
    """``way_in``: the address where the dashboard opens the port, if any."""
    title = _TITLES.get(HTTPStatus(status), HTTPStatus(status).phrase)
    parts = "".join(map(_part, reason.split("\n\n")))
    link = f'<p><a href="{escape(way_in)}">Open it from the dashboard</a></p>' if way_in else ""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n"
        f"<body><main><h1>{escape(title)}</h1>\n{link}{parts}</main>\n"
        f"<footer>Trainyard · {status}</footer></body></html>\n"
    )


def _part(text: str) -> str:
    if text.startswith(_INDENT):
        return f"<pre><code>{escape(text.strip())}</code></pre>\n"
    return f"<p>{escape(text[:1].upper() + text[1:])}</p>\n" if text else ""
