"""Draw a badge: a label and a value side by side, as an SVG for a project's page."""

from __future__ import annotations

import html
from string import Template

CHARACTER_WIDTH = 6.5
"""Average width in pixels of an 11-pixel character; the text is stretched to the computed length."""
PADDING = 6
COLOURS = {True: "#2c7a3f", False: "#b3261e"}

BADGE = Template("""\
<svg xmlns="http://www.w3.org/2000/svg" width="$width" height="20" role="img" aria-label="$label: $value">
  <title>$label: $value</title>
  <clipPath id="r"><rect width="$width" height="20" rx="3"/></clipPath>
  <g clip-path="url(#r)">
    <rect width="$left" height="20" fill="#444"/>
    <rect x="$left" width="$right" height="20" fill="$colour"/>
  </g>
  <g fill="#fff" font-family="Verdana, DejaVu Sans, sans-serif" font-size="11" text-anchor="middle">
    <text x="$label_x" y="14" textLength="$label_length">$label</text>
    <text x="$value_x" y="14" textLength="$value_length">$value</text>
  </g>
</svg>
""")


def badge(label: str, value: str, good: bool) -> str:
    """Return the SVG: green if `good`, otherwise red."""
    lengths = [round(len(text) * CHARACTER_WIDTH) for text in (label, value)]
    left, right = (length + 2 * PADDING for length in lengths)
    return BADGE.substitute(
        label=html.escape(label),
        value=html.escape(value),
        colour=COLOURS[good],
        width=left + right,
        left=left,
        right=right,
        label_x=left / 2,
        value_x=left + right / 2,
        label_length=lengths[0],
        value_length=lengths[1],
    )
