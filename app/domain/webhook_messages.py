"""Events as messages of chat products, which read them in their own forms, and as emails.

Everything in a message is plain text: names and error messages come from people and jobs, and must neither format
nor mention a user.
"""

import unicodedata
from collections.abc import Callable, Mapping
from typing import Any

from app.domain.lifecycle.states import JobState

PLAIN_FORMAT = "json"  # the event itself
EMAIL_FORMAT = "email"
LONGEST_TEXT = 500
LONGEST_SUBJECT = 150
# Kinds of subjects: the key in a payload, and the field with the id.
_SUBJECTS = (("job", "job_id"), ("sweep", "sweep_id"), ("service", "service_id"), ("batch", "batch_id"))
_SYMBOLS = {
    JobState.COMPLETED: "✅",
    JobState.FAILED: "❌",
    JobState.CANCELLED: "⛔",
    JobState.PAUSED: "⏸",
    JobState.TRAINING: "▶",
}
_PAGES = {"job": "jobs", "sweep": "sweeps"}  # of the dashboard, by kind of subject; services and batches have none
# Controls, also those of the direction of text, lone surrogates, and separators of lines.
_NOT_SHOWN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_SLACK_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def in_format(name: str, payload: Mapping[str, Any]) -> Mapping[str, Any]:
    """The body for an HTTP receiver of this format; ``payload`` is the event as the API shows it."""
    make = _FORMATS.get(name)
    return payload if make is None else make(*_parts(payload))


def email_of(payload: Mapping[str, Any], *, webhook_id: str, dashboard: str) -> tuple[str, str]:
    """Subject and text of an email; ``dashboard`` is its address without ``/ui``, empty: no links.

    The subject is one line. Lines of the text end with a line feed, and hold no other control characters.
    """
    event = payload["event"]
    headline, details = _parts(payload)
    page = _page(payload)
    lines = [headline, "", *details]
    if dashboard and page:
        lines += ["", f"{dashboard.rstrip('/')}/ui/{page}"]
    lines += ["", f"Event {event['type']}" + (f" at {event['at']}" if event.get("at") else "")]
    lines += [f"Sent by the webhook {webhook_id} of Trainyard; who manages its project can change or delete it."]
    if dashboard:
        lines += [f"{dashboard.rstrip('/')}/ui/admin/webhooks/{webhook_id}"]
    subject = _printable(f"[Trainyard] {headline}")[:LONGEST_SUBJECT]
    return subject, "\n".join(_printable(line) for part in lines for line in part.split("\n")) + "\n"


def _page(payload: Mapping[str, Any]) -> str:
    """The subject's page of the dashboard, or nothing."""
    for kind, id_field in _SUBJECTS:
        if kind in _PAGES and payload.get(kind):
            return f"{_PAGES[kind]}/{payload[kind][id_field]}"
    return ""


def _printable(text: str) -> str:
    return "".join(" " if unicodedata.category(each) in _NOT_SHOWN else each for each in text)


def _slack(headline: str, details: list[str]) -> dict[str, Any]:
    # https://api.slack.com/reference/surfaces/formatting: these three are what is escaped.
    return {"text": "\n".join([headline, *details]).translate(_SLACK_ESCAPES), "mrkdwn": False}


def _teams(headline: str, details: list[str]) -> dict[str, Any]:
    # An adaptive card, as the workflows of Teams take it. Text runs have no Markdown, text blocks would.
    heading = {"type": "TextRun", "text": headline, "weight": "Bolder"}
    lines = [[heading], *([{"type": "TextRun", "text": detail}] for detail in details)]
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": [{"type": "RichTextBlock", "inlines": inlines} for inlines in lines],
    }
    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
    return {"type": "message", "attachments": [attachment]}


_FORMATS: Mapping[str, Callable[[str, list[str]], dict[str, Any]]] = {"slack": _slack, "teams": _teams}
WEBHOOK_FORMATS: tuple[str, ...] = (PLAIN_FORMAT, *_FORMATS, EMAIL_FORMAT)


def _parts(payload: Mapping[str, Any]) -> tuple[str, list[str]]:
    """The headline, and lines below it."""
    event = payload["event"]
    for kind, id_field in _SUBJECTS:
        if subject := payload.get(kind):
            place = f"{kind} {subject[id_field]} in project {subject['project']}"
            if kind == "job" and subject.get("attempt"):
                place += f", attempt {subject['attempt']}"
            why = event.get("message") or event.get("reason") or ""
            return _headline(subject["name"], event), [place, *([_short(why)] if why else [])]
    return f"Trainyard: {event['type']}", [_short(event["message"])] if event.get("message") else []


def _headline(name: str, event: Mapping[str, Any]) -> str:
    state = event.get("to_status")
    if state is None:
        return f"{name}: {event['type']}"
    symbol = _SYMBOLS.get(state, "")
    return f"{symbol} {name} is {state}".strip()


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…"
