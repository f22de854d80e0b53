"""Kinds of projects: what each supports, and how its files differ."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import NamedTuple

from tflm import libraries
from tflm.application.errors import RequestError
from tflm.application.machine import Machine, MachineOptions
from tflm.application.projects.build import Build
from tflm.boards import Bank
from tflm.errors import VersionAssumed
from tflm.libraries import library_for

LOOP = """
$signature {
  StartConsole();
$log  for (;;) {
    Run();
    Pause();
  }
}
"""

SKETCH = """
void setup() {
  StartConsole();
$log}

void loop() {
  Run();
  Pause();
}
"""

ONCE = """
$signature {
  StartConsole();
$log  return Run();
}
"""


class Entry(NamedTuple):
    """How a platform starts the firmware.

    Attributes:
        console: the template of `console.h`, in `files/console`.
        text: the function that the platform calls; a template.
        signature: its signature.
    """

    console: str
    text: str = LOOP
    signature: str = "int main(void)"

    def ending(self, log: str = "") -> str:
        """The last lines of the main source; `log` is a statement before the first run."""
        return Template(self.text).substitute(signature=self.signature, log=f"  {log}\n" if log else "")


@dataclass(frozen=True)
class Kind:
    """A kind of project.

    Attributes:
        name: its name for `--project`.
        kernels: supported kernel libraries, without versions.
        families: supported parts, as in `Target.family`; empty for all.
        values: values for the templates, in addition to the common ones.
        entry: how the platform starts the firmware.
        memory: returns the attribute that places an array in a memory, and the header that defines it.
        folder: folder of the sources; a template.
        suffix: suffix of C++ sources.
        main: name of the main source, if it is not the usual one.
        templates: folders of templates besides its own.
        source: what TFLM comes from: folders of templates for projects with TFLM.
        distribution: the distribution of TFLM that it pins; empty for a commit of TFLM.
    """

    name: str
    kernels: frozenset[str]
    families: frozenset[str]
    values: Callable[[Build], dict[str, str]]
    entry: Entry
    memory: Callable[[Bank], tuple[str, str]]
    folder: str = ""
    suffix: str = ".cc"
    main: str = ""
    templates: tuple[str, ...] = ()
    source: tuple[str, ...] = ()
    distribution: str = ""

    def pinned(self, machine: Machine) -> Machine:
        """The machine with the TFLM and kernels that the project gets.

        Raises:
            RequestError: it cannot get the chosen ones.
        """
        name, release = machine.kernels.name, machine.kernels.release
        plain = name.partition("@")[0]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", VersionAssumed)  # the project pins it
            if machine.board is not None and machine.kernels == machine.board.library(plain):
                name, release = plain, libraries.by_name(plain).release  # they are defaults
            kernels = library_for(name, machine.target, machine.release or self.distribution or release)
            usual = library_for(plain, machine.target, kernels.release)
        contained = kernels.release.distribution
        if self.distribution and (contained is None or contained.name != self.distribution):
            raise RequestError(
                f"a project for {self.name} gets TFLM from {self.distribution}, not {kernels.release.name}; leave out "
                f"--tflm, or use one of tflm arena --tflm '{self.distribution} VERSION'"
            )
        if self.source and not kernels.release.static_memory:
            raise RequestError(
                f"a project for {self.name} builds TFLM with static memory, unlike {kernels.release.name}"
            )
        if self.source and usual.name != kernels.name:
            raise RequestError(
                f"a project for {self.name} gets {usual.name} kernels from {kernels.release.name}, not {name}; use "
                "another --tflm or --kernels"
            )
        return machine._replace(kernels=kernels)

    def require(self, machine: Machine) -> None:
        """Check that such a project supports a machine and its kernels.

        Raises:
            RequestError: it is not supported; the message lists what is.
        """
        self.require_part(machine)
        kernels = machine.kernels.name.partition("@")[0]
        if kernels not in self.kernels:
            raise RequestError(
                f"a project for {self.name} can't be built with {kernels} kernels; "
                f"it supports {' or '.join(sorted(self.kernels))}: use another --project or --kernels"
            )

    def require_part(self, machine: Machine) -> None:
        """Check that such a project supports a machine.

        Raises:
            RequestError: it does not.
        """
        if self.families and machine.target.family not in self.families:
            raise RequestError(
                f"a project for {self.name} can't be built for {machine.place}; use another --project or a board"
            )


SHORT = ("-b", "-t", "-k")
"""The short names of --board, --target and --kernels."""


def origin_of_project(command_line: Sequence[str], on: MachineOptions) -> str:
    """The command that made a project, without local folders.

    Its last options are those that hold, whether the command line or a project's settings have them.
    """
    held = {"--board": on.board, "--target": on.target, "--sdk": on.sdk, "--kernels": on.kernels, "--tflm": on.release}
    held["--reserve"] = on.reserve
    typed = iter(command_line[1:])
    words = []
    for word in typed:
        name = word.partition("=")[0]
        if name in (*held, "--source", *SHORT):
            if name == word:
                next(typed, None)
        elif word[:2] not in SHORT:
            words.append(word)
    words += [word for name, value in held.items() if value is not None for word in (name, str(value))]
    return shlex.join(["tflm", *(Path(word).name if Path(word).is_absolute() else word for word in words)])
