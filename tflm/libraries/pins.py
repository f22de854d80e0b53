"""The version of CMSIS-NN or ESP-NN in a TFLM release, for kernel libraries named without a version.

TFLM pins a commit of CMSIS-NN. esp-tflite-micro declares a range of ESP-NN versions, of which a build uses the newest;
ESPHome pins esp-tflite-micro and, in some releases, ESP-NN.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

from tflm.libraries import cmsis_nn_scratch, esp_nn_scratch
from tflm.releases import Release, distributions
from tflm.targets import Target

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
"""Versions by the first release that uses them. Builds of releases before 2024.7 used the current main branch."""


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


CMSIS_NN = {
    "5448dcf07": "e98ee09a",
    "c373ad48b": "23.02",
    "6f2828619": "dc64e488",
    "3022d0960": "58f17705",
    "c845961df": "ca476254",
    "5beca7c52": "v5.0.0",
    "0ec823ed2": "2a999a2f",
    "f5e498b68": "72e1ebf6",
    "178cfebaa": "6cc31fb3",
    "9741578df": "8492d82a",
    "e5e230552": "15dbe7cd",
    "6b766e357": "01dee38e",
    "89f99a9e7": "95f293df",
    "6147f2044": "f2cb41ca",
    "182c8c770": "v7.0.0",
    "392b78f2f": "e096196a",
    "d0890bb45": "6d9d61d8",
    "acc13e42e": "4ab83cc3",
}
"""Versions by the commit of TFLM whose download script first pins them. Before the first one, CMSIS-NN was part of
CMSIS."""

OWN_CMSIS_NN = {"chirale": "8aa412fd"}
"""Distributions with another CMSIS-NN than the one that their TFLM pins."""

FOLLOWING_TFLM = frozenset({"chirale", "pico-tflmicro", "arduino-tensorflowlite"})
"""Distributions whose CMSIS-NN is known; others have their own module or copy, whose version is unknown."""

ESP_NN = {
    "32476d6": "commit 13d77d1",
    "eabc671": "commit 9cd2b30",
    "9a62f81": "commit c51cf5b",
    "c2da36c": "commit b219491",
    "8e99cd1": "commit e04f1b8",
    "2690c7a": "1.0.0",
    "064b8fe": "^1.0.0-rc1",
    "07c014e": "^1.1.0",
    "1.3.4": ">=1.1.1",
    "173e019": "^1.1.0",
    "3e6970d": ">=1.1.1",
}
"""ESP-NN in the manifest or submodule of esp-tflite-micro, by the first version with it."""

NEAREST_VERSIONS = {
    "commit 13d77d1": "1.0-beta",
    "commit 9cd2b30": "1.0-beta",
    "commit c51cf5b": "1.0-beta",
    "commit b219491": "1.0-beta",
    "commit e04f1b8": "1.0.0-rc1",
}
"""For commits between versions: the version with the same scratch buffers, or the first one."""


class Pin(NamedTuple):
    """A version of a kernel library that a release is built with.

    Attributes:
        version: its name.
        doubt: why it may be another, as a sentence; empty if the release pins it.
    """

    version: str
    doubt: str = ""


def cmsis_nn(release: Release, target: Target) -> Pin:
    """The CMSIS-NN of a release."""
    distribution = release.distribution
    if distribution is not None and distribution.name in OWN_CMSIS_NN:
        return Pin(OWN_CMSIS_NN[distribution.name])
    named = [version for commit, version in CMSIS_NN.items() if release.holds(commit)]
    if not named:
        first = next(iter(CMSIS_NN.values()))
        why = f"{release.name} contains CMSIS-NN as a part of CMSIS, whose version is unknown; {first} is assumed"
        return Pin(first, f"{why}, the first that TFLM names separately; buffer sizes may differ.")
    if distribution is not None and distribution.name not in FOLLOWING_TFLM:
        why = f"{distribution.name} has its own CMSIS-NN of unknown version; {named[-1]} is assumed"
        return Pin(named[-1], f"{why}, as in the TFLM of {distribution.version}. Name yours as cmsis-nn@VERSION.")
    return Pin(named[-1])


def esp_nn(release: Release, target: Target) -> Pin | None:
    """The ESP-NN of a release on a chip; None for TFLM alone, which has no ESP-NN."""
    component = component_of(release)
    if component is None or release.distribution is None:
        return None
    stated = esp_nn_stated(component)
    if release.distribution.name == "esphome":
        stated = ESPHOME[release.distribution.version].esp_nn or stated
    if stated in esp_nn_scratch.VERSIONS:
        return Pin(stated)
    who = f"{release.distribution.name} {release.distribution.version}"
    if stated in NEAREST_VERSIONS:
        nearest = NEAREST_VERSIONS[stated]
        return Pin(nearest, f"{who} has ESP-NN {stated}; {nearest} is assumed, the nearest known version.")
    newest = versions_in(stated, target)[-1]
    why = f"{who} allows any ESP-NN {stated} and uses the newest at build time; {newest} is assumed, the newest known"
    return Pin(newest, f"{why} for {target.name}. Name the version in your firmware as esp-nn@VERSION.")


def esp_nn_stated(component: str) -> str:
    """The ESP-NN that a version of esp-tflite-micro declares: a range such as ^1.1.0, a version, or a commit."""
    return newest_of(ESP_NN, component)


def versions_in(stated: str, target: Target) -> list[str]:
    """Known versions of ESP-NN in a range such as ^1.1.0 or >=1.1.1, oldest first; a version by itself is one, too."""
    match = re.fullmatch(r"(\^|>=)?(.+)", stated)
    assert match is not None
    kind, lowest = match.groups()
    versions = [version for version in esp_nn_scratch.VERSIONS if "." in version]
    first = versions.index(lowest)
    if kind is None:
        return [lowest]
    major = lowest.split(".")[0] if kind == "^" else ""
    known = esp_nn_scratch.known_versions(target)
    return [version for version in versions[first:] if version in known and version.startswith(major)]


PINS: Mapping[str, Callable[[Release, Target], Pin | None]] = {
    "cmsis-nn": cmsis_nn,
    "cmsis-nn:size": cmsis_nn,
    "esp-nn": esp_nn,
}
"""Functions that find the version in a release, by the name of a library whose figures depend on it."""

VERSIONS: Mapping[str, tuple[str, ...]] = {
    "cmsis-nn": cmsis_nn_scratch.VERSIONS,
    "cmsis-nn:size": cmsis_nn_scratch.VERSIONS,
    "esp-nn": esp_nn_scratch.VERSIONS,
}
"""All versions of each library, oldest first."""
