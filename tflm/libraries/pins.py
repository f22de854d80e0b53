"""Which version of CMSIS-NN or ESP-NN a release of TFLM is built with, where a kernel library is named without one.

TFLM names a commit of CMSIS-NN. esp-tflite-micro names a range of versions of ESP-NN, in which the newest one is taken
when a firmware is built; ESPHome names esp-tflite-micro, and of some releases ESP-NN.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from tflm.libraries import cmsis_nn_scratch, esp_nn_scratch
from tflm.libraries.component import ESPHOME, component_of, newest_of
from tflm.releases import Release
from tflm.targets import Target

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
"""By the commit of TFLM from which its download script names it; before the first one, CMSIS-NN was part of CMSIS."""

OWN_CMSIS_NN = {"chirale": "8aa412fd"}
"""Distributions with another CMSIS-NN than the TFLM that they contain names."""

FOLLOWING_TFLM = frozenset({"chirale", "pico-tflmicro", "arduino-tensorflowlite"})
"""Distributions whose CMSIS-NN is known; others have a module or a copy of their own, which nobody has looked into."""

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
"""What the manifest of esp-tflite-micro asks for, or its submodule is, by the first version of it that does."""

NEAREST_VERSIONS = {
    "commit 13d77d1": "1.0-beta",
    "commit 9cd2b30": "1.0-beta",
    "commit c51cf5b": "1.0-beta",
    "commit b219491": "1.0-beta",
    "commit e04f1b8": "1.0.0-rc1",
}
"""Of commits without a version: the one whose scratch buffers are the same, or the first that there was."""


class Pin(NamedTuple):
    """A version of a kernel library that a release is built with.

    Attributes:
        version: its name.
        doubt: why it may be another, as a sentence; empty where the release says so.
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
    """The ESP-NN of a release on a chip; None where TFLM alone is named, which knows of none."""
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
    """What a version of esp-tflite-micro says of ESP-NN: a range such as ^1.1.0, a version, or a commit."""
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
"""By the name of a kernel library whose figures go by its version (not ESP-NN in plain C): which one a release has."""

VERSIONS: Mapping[str, tuple[str, ...]] = {
    "cmsis-nn": cmsis_nn_scratch.VERSIONS,
    "cmsis-nn:size": cmsis_nn_scratch.VERSIONS,
    "esp-nn": esp_nn_scratch.VERSIONS,
}
"""Of these libraries, all versions, oldest first."""
