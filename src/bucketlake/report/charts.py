"""The charts of a report: Matplotlib draws them, as SVG inside the page.

A chart is stated as data. Its texts stay texts, so that they can be searched and read aloud. Its
colours are names of the page's style, which has a light and a dark set. Series differ by pattern
too, so that a chart can be read without colour. A chart has the width of a phone; wider pages show
several beside each other.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from importlib.util import find_spec
from io import StringIO
from math import cos, pi, sin
from typing import Any

from bucketlake.errors import UnsupportedFeatureError

_WIDTH_INCHES = 4.6
_LABEL_MAX = 32

# Each colour stands for a variable of the page's style.
_INK, _FAINT, _RULE, _PAPER = "#010101", "#020202", "#030303", "#040404"
_FIRST, _SECOND = "#050505", "#060606"
_VARIABLES = {
    _INK: "var(--ink)",
    _FAINT: "var(--faint)",
    _RULE: "var(--rule)",
    _PAPER: "var(--paper)",
    _FIRST: "var(--first)",
    _SECOND: "var(--second)",
}
_LOOKS: tuple[dict[str, Any], ...] = (
    {"facecolor": _FIRST, "edgecolor": _FIRST, "linewidth": 0.8},
    {"facecolor": "none", "edgecolor": _SECOND, "linewidth": 0.8, "hatch": "//////"},
)
"""The first series is filled, the second is hatched."""

_BESIDE_OTHERS = {"facecolor": _FIRST, "edgecolor": _PAPER, "linewidth": 1.5}
_MARKED_MAX = 60  # Points of a chart that get a marker each.

_SETTINGS: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "bucketlake",  # The same facts give the same page.
    "text.parse_math": False,  # A partition may be called $x$.
    "axes.unicode_minus": False,
    "font.family": "sans-serif",
    "font.size": 10.5,
    "hatch.linewidth": 0.9,
    "text.color": _INK,
    "axes.edgecolor": _RULE,
    "axes.labelcolor": _FAINT,
    "xtick.color": _FAINT,
    "ytick.color": _FAINT,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar of one or two parts; the text stands at its right end."""

    label: str
    parts: tuple[float, ...]
    text: str


@dataclass(frozen=True, slots=True)
class Sector:
    """A bucket on a hash ring or in a directory.

    ``start`` and ``share`` are parts of all hash values; ``height`` is one of the largest bucket.
    """

    label: str
    start: float
    share: float
    height: float


def require_matplotlib(root: str) -> None:
    """Raise UnsupportedFeatureError if there is no Matplotlib."""
    if find_spec("matplotlib") is None:
        raise UnsupportedFeatureError(
            "a report without Matplotlib, which draws its charts,",
            root,
            "pip install 'bucketlake[report]'",
        )


def bar_chart(name: str, bars: Sequence[Bar], *, unit: str, series: Sequence[str] = ()) -> str:
    """Draw horizontal bars, each below its label; the series name the parts of a bar."""

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        for place, bar in enumerate(bars):
            left = 0.0
            for part, look in zip(bar.parts, _LOOKS, strict=False):
                if part:  # Otherwise its edge would show.
                    axes.barh(-place - 0.24, part, left=left, height=0.34, **look)
                left += part
            axes.text(0, -place + 0.02, shortened(bar.label), ha="left", va="bottom")
            end = {"ha": "right", "va": "bottom", "color": _FAINT}
            axes.text(1, -place + 0.02, bar.text, transform=axes.get_yaxis_transform(), **end)
        longest = max((sum(bar.parts) for bar in bars), default=0)
        axes.set_xlim(0, longest or 1)
        axes.set_ylim(0.5 - len(bars), 0.55)
        _count_in_whole_numbers(axes.xaxis, [part for bar in bars for part in bar.parts])
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        axes.set_xlabel(unit)
        _legend(figure, series)

    return _svg(name, draw, 0.42 * len(bars) + 0.55 + 0.25 * bool(series))


def growth_chart(
    name: str,
    times: Sequence[datetime],
    parts: Sequence[Sequence[float]],
    *,
    unit: str,
    series: Sequence[str] = (),
) -> str:
    """Draw steps over time, stacked: one or two series of values."""

    def draw(figure: Any) -> None:
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

        axes = figure.add_subplot()
        floor = [0.0] * len(times)
        for values, look in zip(parts, _LOOKS, strict=False):
            top = [low + value for low, value in zip(floor, values, strict=True)]
            axes.fill_between(times, floor, top, step="post", **look | {"linewidth": 0})
            floor = top
        if len(times) <= _MARKED_MAX:
            axes.plot(times, floor, linestyle="none", marker="o", markersize=3, color=_INK)
        axes.set_ylim(0, max(floor, default=0) * 1.08 or 1)
        _count_in_whole_numbers(axes.yaxis, floor)
        locator = AutoDateLocator(maxticks=5)
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))
        axes.grid(axis="y", color=_RULE, linewidth=0.6)
        axes.set_ylabel(unit)
        axes.set_xlabel("completion of the commit", loc="left")  # Dates end on the right.
        _legend(figure, series)

    return _svg(name, draw, 2.6)


def commit_chart(
    name: str,
    values: Sequence[float],
    is_service: Sequence[bool],
    *,
    unit: str,
    ends: tuple[str, str],
) -> str:
    """Draw a bar for each commit, oldest left; table services are hatched."""

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        for place, (value, service) in enumerate(zip(values, is_service, strict=True)):
            axes.bar(place, value, width=0.8, **_LOOKS[service])
        axes.set_ylim(0, max(values, default=0) * 1.08 or 1)
        axes.set_xlim(-0.6, max(len(values), 4) - 0.4)
        last = len(values) - 1
        axes.set_xticks([0, last] if last > 3 else [0], ends if last > 3 else ends[:1])
        for tick, side in zip(axes.get_xticklabels(), ("left", "right"), strict=False):
            tick.set_ha(side)
        axes.grid(axis="y", color=_RULE, linewidth=0.6)
        axes.set_ylabel(unit)
        axes.set_xlabel("commits, oldest to newest")
        _legend(figure, ("write", "table service"))

    return _svg(name, draw, 2.6)


def ring_chart(name: str, sectors: Sequence[Sector]) -> str:
    """Draw a hash ring, clockwise from the top."""

    def draw(figure: Any) -> None:
        from matplotlib.patches import Wedge

        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_aspect("equal")
        axes.set_axis_off()
        axes.set_xlim(-1.25, 1.25)
        axes.set_ylim(-1.25, 1.25)
        for sector in sectors:
            begin, end = 90 - 360 * (sector.start + sector.share), 90 - 360 * sector.start
            outer = 0.4 + 0.6 * sector.height
            wedge = Wedge((0, 0), outer, begin, end, width=outer - 0.36, **_BESIDE_OTHERS)
            axes.add_patch(wedge)
            if sector.share >= 0.02:
                turn = 2 * pi * (sector.start + sector.share / 2)
                x, y = 1.12 * sin(turn), 1.12 * cos(turn)
                axes.text(x, y, sector.label, ha="center", va="center")
        axes.text(0, 0, "hash ring", ha="center", va="center", color=_FAINT)

    return _svg(name, draw, _WIDTH_INCHES, constrained=False)


def directory_chart(name: str, sectors: Sequence[Sector], *, unit: str, scale: float) -> str:
    """Draw the buckets of a directory side by side, by the last bits of their hash values."""

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        for sector in sectors:
            height = sector.height * scale
            axes.bar(sector.start, height, width=sector.share, align="edge", **_BESIDE_OTHERS)
            if sector.share * 60 >= len(sector.label):
                middle = sector.start + sector.share / 2
                axes.text(middle, height + scale * 0.03, sector.label, ha="center", va="bottom")
        axes.set_xlim(0, 1)
        axes.set_ylim(0, scale * 1.2 or 1)
        axes.set_xticks([])
        axes.set_xlabel("share of the hash values; label: their last bits")
        axes.set_ylabel(unit)

    return _svg(name, draw, 2.6)


def shortened(label: str) -> str:
    """Return the end of a long label: paths of one table begin alike."""
    return label if len(label) <= _LABEL_MAX else f"…{label[1 - _LABEL_MAX :]}"


def _count_in_whole_numbers(axis: Any, values: Sequence[float]) -> None:
    if all(float(value).is_integer() for value in values):
        axis.get_major_locator().set_params(integer=True)


def _legend(figure: Any, series: Sequence[str]) -> None:
    from matplotlib.patches import Patch

    if series:
        handles = [Patch(**look) for look in _LOOKS[: len(series)]]
        place = {"loc": "outside upper left", "ncols": len(series), "frameon": False}
        figure.legend(handles, series, **place)


def _svg(
    name: str, draw: Callable[[Any], None], height_inches: float, *, constrained: bool = True
) -> str:
    from matplotlib import style
    from matplotlib.figure import Figure

    with style.context(["default", _SETTINGS]), _without_warnings():  # Not those of the user.
        size = _WIDTH_INCHES, height_inches
        figure = Figure(figsize=size, layout="constrained" if constrained else None)
        draw(figure)
        text = StringIO()
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(text, format="svg", transparent=True, metadata=nothing)
    return _inline(name, text.getvalue())


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Keep to ourselves that a letter is in no font of Matplotlib: the browser has other fonts."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


_REFERENCE = re.compile(r'(?:url\(#|href="#)([^")]+)')


def _inline(name: str, document: str) -> str:
    """Return the element ``svg`` of a document, with ids that no other chart of the page has."""
    svg = document[document.index("<svg") :].strip()
    svg = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<svg [^>]*?(viewBox="[^"]*")[^>]*>', r"<svg \1>", svg, count=1)
    used = {*_REFERENCE.findall(svg)}

    def tag(found: re.Match[str]) -> str:
        text = found[0].replace("xlink:href", "href")
        text = re.sub(
            r' id="([^"]*)"', lambda m: f' id="{name}-{m[1]}"' if m[1] in used else "", text
        )
        text = _REFERENCE.sub(lambda m: m[0].replace("#", f"#{name}-"), text)
        for colour, variable in _VARIABLES.items():
            text = text.replace(colour, variable)
        return text

    return re.sub("<[^>]+>", tag, svg)  # Tags alone: a partition may be called like a colour.
