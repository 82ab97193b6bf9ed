"""Elements of SVG, and the document around them: one style for light and dark pages, no scripts, all text escaped."""

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH = 760
TEXT, SMALL = 12, 11  # sizes of text
# What XML 1.0 can't contain, not even as a reference.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NARROW, _BROAD = frozenset("fijlrtI.,:;'|!()[]/ -"), frozenset("mwMWQOG@%\N{MINUS SIGN}\N{HORIZONTAL ELLIPSIS}")
_MARGIN = 20
BOLD = 0.87  # of the room for text, because bold letters are wider

# Blue and vermilion of Okabe and Ito, which colour-blind readers can tell apart; each has a shape of its own, too.
_LIGHT = {
    "page": "#ffffff",
    "text": "#1f2328",
    "muted": "#59636e",
    "grid": "#e6e9ed",
    "line": "#8c959f",
    "done": "#0072b2",
    "stopped": "#7d8792",
    "best": "#d55e00",
    "track": "#eef1f4",
    "ramp": ("#c5d3e0", "#9dbbd6", "#6fa1c9", "#3d86ba", "#0f6ba8", "#00497a"),
}
_DARK = {
    "page": "#15181d",
    "text": "#e6e9ec",
    "muted": "#9ba5b0",
    "grid": "#2a3037",
    "line": "#6c7681",
    "done": "#56b4e9",
    "stopped": "#89939e",
    "best": "#ff9a4a",
    "track": "#232930",
    "ramp": ("#39444f", "#3d5a73", "#417298", "#4a8fbf", "#5fb0e3", "#a5dcff"),
}


def _colours(theme: Mapping[str, str | Sequence[str]]) -> str:
    ramp = "".join(f".tyf .q{place}{{stroke:{colour}}}" for place, colour in enumerate(theme["ramp"]))
    return (
        ".tyf .page{{fill:{page}}}.tyf text{{fill:{text}}}.tyf .muted{{fill:{muted}}}.tyf .halo{{stroke:{page}}}"
        ".tyf .grid{{stroke:{grid}}}.tyf .line{{stroke:{line}}}.tyf .track{{fill:{track}}}"
        ".tyf .done{{fill:{done};stroke:{page}}}.tyf .stopped{{fill:{page};stroke:{stopped}}}"
        ".tyf .best{{fill:{best};stroke:{page}}}.tyf .broken{{stroke:{stopped}}}.tyf .bar{{fill:{done}}}"
        ".tyf .lost{{fill:{stopped}}}.tyf .went{{stroke:{done}}}.tyf .ended{{stroke:{stopped}}}"
        ".tyf .record{{stroke:{best}}}.tyf .bestlabel{{fill:{best}}}"
    ).format(**theme) + ramp


_SHAPES = """
.tyf text{font:12px system-ui,-apple-system,Roboto,Arial,sans-serif}
.tyf .small{font-size:11px}
.tyf .head{font-size:16px;font-weight:600}
.tyf .strong{font-weight:600}
.tyf .halo{stroke-width:3.5px;stroke-linejoin:round;paint-order:stroke}
.tyf .line,.tyf .grid,.tyf .went,.tyf .ended,.tyf .record,.tyf .ramp,.tyf .broken{fill:none}
.tyf .went,.tyf .ended{stroke-width:1.2px;stroke-opacity:.55}
.tyf .record{stroke-width:2px}
.tyf .ramp{stroke-width:1.2px;stroke-opacity:.7}
.tyf .many .ramp{stroke-opacity:.35}
.tyf .swatch{stroke-width:6px;stroke-opacity:1}
.tyf .ramp .record{stroke-width:2.5px;stroke-opacity:1}
.tyf .done,.tyf .best{stroke-width:.8px}
.tyf .stopped{stroke-width:1.3px}
.tyf .broken{stroke-width:1.6px}
"""
STYLE = f"{_SHAPES}{_colours(_LIGHT)}@media (prefers-color-scheme:dark){{{_colours(_DARK)}}}"


@dataclass(frozen=True, kw_only=True)
class Heading:
    """``kind`` names the figure; ``title`` and ``facts`` stand above it, ``description`` is for screen readers."""

    kind: str
    title: str
    facts: str
    description: str


def document(heading: Heading, height: float, parts: Iterable[str], *, width: float = WIDTH) -> str:
    title, desc = f"sweep-{heading.kind}-title", f"sweep-{heading.kind}-desc"
    size = f'width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="tyf" role="img" aria-labelledby="{title} {desc}" {size}>'
        f'<title id="{title}">{clean(heading.title)}</title><desc id="{desc}">{clean(heading.description)}</desc>'
        f'<style>{STYLE}</style><rect class="page" width="{width:g}" height="{height:g}" rx="8"/>'
        f"{text(_MARGIN, 32, fitted(heading.title, BOLD * (width - 2 * _MARGIN), 16), 'head')}"
        f"{text(_MARGIN, 52, fitted(heading.facts, width - 2 * _MARGIN, TEXT), 'muted')}{''.join(parts)}</svg>\n"
    )


def clean(value: str) -> str:
    """Text for XML: escaped, and without characters that it can't have."""
    return escape(_NOT_XML.sub("\N{REPLACEMENT CHARACTER}", value))


def text(
    x: float, y: float, value: str, kind: str = "", *, anchor: str = "start", turned: bool = False, full: str = ""
) -> str:
    """``turned``: reads upwards. ``full`` is shown when the pointer rests on it."""
    place = f'transform="translate({x:.1f} {y:.1f}) rotate(-90)"' if turned else f'x="{x:.1f}" y="{y:.1f}"'
    named = f' class="{kind}"' if kind else ""
    anchored = f' text-anchor="{anchor}"' if anchor != "start" else ""
    hint = f"<title>{clean(full)}</title>" if full and full != value else ""
    return f"<text {place}{named}{anchored}>{hint}{clean(value)}</text>"


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def box(x: float, y: float, width: float, height: float, kind: str, *, hint: str = "") -> str:
    inner = f"><title>{clean(hint)}</title></rect>" if hint else "/>"
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" class="{kind}"{inner}'


def path(points: Iterable[tuple[float, float]], kind: str, *, hint: str = "") -> str:
    places = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    inner = f"><title>{clean(hint)}</title></path>" if hint else "/>"
    return f'<path d="M{places}" class="{kind}"{inner}' if places else ""


def circle(x: float, y: float, radius: float, kind: str, *, hint: str = "") -> str:
    inner = f"><title>{clean(hint)}</title></circle>" if hint else "/>"
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" class="{kind}"{inner}'


def cross(x: float, y: float, kind: str, *, hint: str = "") -> str:
    inner = f"><title>{clean(hint)}</title></path>" if hint else "/>"
    return f'<path d="M{x - 3:.1f} {y - 3:.1f}l6 6m0 -6l-6 6" class="{kind}"{inner}'


def width_of(value: str, size: int = TEXT) -> float:
    """About as wide as the text is drawn; what draws it is not known here."""
    return size * sum(map(_share, value))


def fitted(value: str, width: float, size: int = TEXT, *, from_end: bool = False) -> str:
    """The text, or its beginning (or its end) with an ellipsis, in so many pixels."""
    if width_of(value, size) <= width:
        return value
    kept = value
    while kept and width_of(kept, size) + size > width:
        kept = kept[1:] if from_end else kept[:-1]
    return f"…{kept}" if from_end else f"{kept.rstrip()}…"


def _share(character: str) -> float:
    """Of the size of the text."""
    if unicodedata.east_asian_width(character) in "WF":
        return 1.0
    if character in _NARROW:
        return 0.34
    if character in _BROAD:
        return 0.88
    return 0.68 if character.isupper() else 0.56
