"""Charts as SVG that belongs to a page: its fonts, its colours in light and dark, and a text.

A chart is drawn in placeholder colours that become the page's CSS variables, so one drawing
serves both schemes and print.
"""

from __future__ import annotations

import io
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from xml.etree import ElementTree as ET

import matplotlib.style
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.axes import Axes

WIDTH_PX: Final = 400
FONT_PX: Final = 12

INK: Final = "#0c0d01"
MUTED: Final = "#0c0d02"
LINE: Final = "#0c0d03"
SHORT: Final = "#0c0d04"
LONG: Final = "#0c0d05"
ACCENT: Final = "#0c0d06"
PAPER: Final = "#0c0d07"
BAND: Final = "#0c0d08"
NONE: Final = "#0c0d09"
STEPS: Final = ("#0c0d11", "#0c0d12", "#0c0d13", "#0c0d14", "#0c0d15", "#0c0d16")
"""From the lowest cost to the highest."""

_VARIABLES: Final = {
    INK: "ink",
    MUTED: "muted",
    LINE: "line",
    SHORT: "short",
    LONG: "long",
    ACCENT: "accent",
    PAPER: "paper",
    BAND: "band",
    NONE: "none",
    **{colour: f"step-{at}" for at, colour in enumerate(STEPS)},
}
_PLACEHOLDER: Final = re.compile("|".join(_VARIABLES))
_REFERENCE: Final = re.compile(r"url\(#([^)]+)\)|^#(.+)$")
_SPACE: Final = re.compile(r"\s*\n\s*")
_STYLE: Final[dict[str, Any]] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "fleetopt",
    "text.parse_math": False,
    "font.size": FONT_PX,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.labelsize": FONT_PX,
    "axes.titlesize": FONT_PX,
    "axes.grid": True,
    "grid.color": LINE,
    "grid.linewidth": 0.8,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.minor.visible": False,
    "legend.frameon": False,
    "legend.fontsize": FONT_PX,
    "lines.linewidth": 2.0,
    "lines.solid_capstyle": "round",
}


class Chart:
    """One drawing: a figure while it is made, SVG afterwards."""

    def __init__(self, height_px: int) -> None:
        self._figure = Figure(figsize=(WIDTH_PX / 72, height_px / 72), layout="constrained")
        self.axes: Axes = self._figure.add_subplot()

    def svg(self, name: str, title: str, description: str) -> str:
        """Return the drawing as an element of a page; `name` is unique there."""
        written = io.StringIO()
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        self._figure.savefig(written, format="svg", transparent=True, metadata=nothing)
        root = ET.fromstring(written.getvalue())  # noqa: S314 - written two lines above
        _strip(root)
        _name(root, name)
        for tag, text in (("desc", description), ("title", title)):
            told = ET.Element(tag, {"id": f"{name}-{tag}"})
            told.text = text
            root.insert(0, told)
        root.attrib = {
            "viewBox": root.attrib["viewBox"],
            "role": "img",
            "aria-labelledby": f"{name}-title {name}-desc",
        }
        return ET.tostring(root, encoding="unicode")


@contextmanager
def charts() -> Iterator[None]:
    """Draw in the page's style, whatever the machine's settings of Matplotlib are."""
    with matplotlib.style.context(["default", _STYLE]):
        yield


def _strip(root: ET.Element) -> None:
    """Drop namespaces and what the page says better: fonts, line joins, colours."""
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag.endswith(("}metadata", "}style")):
                parent.remove(child)
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        element.text, element.tail = _tight(element.text), _tight(element.tail)
        element.attrib = {
            key.rpartition("}")[2]: _SPACE.sub(" ", value).strip()
            for key, value in element.attrib.items()
        }
        style = element.attrib.get("style")
        if style:
            style = _PLACEHOLDER.sub(lambda found: f"var(--{_VARIABLES[found[0]]})", style)
            element.attrib["style"] = re.sub(r"font-family: [^;]+; ?", "", style)


def _tight(text: str | None) -> str | None:
    return text if text and text.strip() else None


def _name(root: ET.Element, prefix: str) -> None:
    """Keep the ids that something refers to, made unique in the page; others become classes."""
    used = {
        found[1] or found[2]
        for element in root.iter()
        for value in element.attrib.values()
        for found in _REFERENCE.finditer(value)
    }
    for element in root.iter():
        name = element.attrib.pop("id", None)
        if name in used:
            element.attrib["id"] = f"{prefix}-{name}"
        elif name and name.startswith("class-"):
            element.attrib["class"] = name.removeprefix("class-")
        for key, value in element.attrib.items():
            if key != "id":
                element.attrib[key] = _REFERENCE.sub(
                    lambda found: (
                        f"url(#{prefix}-{found[1]})" if found[1] else f"#{prefix}-{found[2]}"
                    ),
                    value,
                )
