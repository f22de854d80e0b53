"""esp-tflite-micro, the component that contains TFLM for Espressif's chips: which one a release has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeVar

from tflm.releases import Release, distributions

NAME = "esp-tflite-micro"

T = TypeVar("T")


class Contents(NamedTuple):
    """What an ESPHome release takes.

    Attributes:
        component: the version of esp-tflite-micro.
        esp_nn: the version of ESP-NN; empty where the component's manifest decides.
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
"""By the first release that does; those before 2024.7 took the main branch of the day on which they were built."""


def component_of(release: Release) -> str | None:
    """The version of the component that a release is; None where it is TFLM alone, or contained in something else."""
    distribution = release.distribution
    if distribution is None:
        return None
    if distribution.name == "esphome":
        return ESPHOME[distribution.version].component
    return distribution.version if distribution.name == NAME else None


def holds(release: Release, version: str) -> bool:
    """Whether the glue for ESP-NN is that of a version or a later one; that of TFLM alone is as in the newest."""
    component = component_of(release)
    return component is None or _order().index(version) <= _order().index(component)


def newest_of(changes: Mapping[str, T], component: str) -> T:
    """Of declarations by the version of the component that each came with, oldest first, the one that holds."""
    place = _order().index(component)
    return [change for version, change in changes.items() if _order().index(version) <= place][-1]


def _order() -> list[str]:
    return [version.version for version in distributions()[NAME]]
