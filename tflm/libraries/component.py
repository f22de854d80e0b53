"""esp-tflite-micro, the component with TFLM for Espressif's chips: its version in a release."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeVar

from tflm.releases import Release, distributions

NAME = "esp-tflite-micro"

T = TypeVar("T")


class Contents(NamedTuple):
    """Versions that an ESPHome release uses.

    Attributes:
        component: the version of esp-tflite-micro.
        esp_nn: the version of ESP-NN; empty if the component's manifest determines it.
    """

    component: str
    esp_nn: str = ""


ESPHOME = {
    "2024.2": Contents("70fd91c"),
    "2024.7": Contents("1.3.1"),
    "2024.10": Contents("1.3.1", "1.1.0"),
    "2025.5": Contents("1.3.3.1"),
    "2026.4": Contents("1.3.3.1", "1.1.2"),
}
"""By the first release that uses them; builds of releases before 2024.7 used the current main branch."""


def component_of(release: Release) -> str | None:
    """The component's version in a release; None if the release is TFLM alone, or another distribution."""
    distribution = release.distribution
    if distribution is None:
        return None
    if distribution.name == "esphome":
        return ESPHOME[distribution.version].component
    return distribution.version if distribution.name == NAME else None


def holds(release: Release, version: str) -> bool:
    """Whether the glue code for ESP-NN is that of a version or later; for TFLM alone it is the newest."""
    component = component_of(release)
    return component is None or _order().index(version) <= _order().index(component)


def newest_of(changes: Mapping[str, T], component: str) -> T:
    """The declaration in effect, from declarations by the component version that introduced each, oldest first."""
    place = _order().index(component)
    return [change for version, change in changes.items() if _order().index(version) <= place][-1]


def _order() -> list[str]:
    return [version.version for version in distributions()[NAME]]
