"""A kind of project: what it supports, and how its files differ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tflm.application.errors import RequestError
from tflm.application.export import SourceStyle
from tflm.application.machine import Machine
from tflm.application.projects.build import Build
from tflm.boards import Bank


@dataclass(frozen=True)
class Kind:
    """A kind of project.

    Attributes:
        name: its name for `--project`.
        kernels: supported kernel libraries, without versions.
        families: supported parts, as in `Target.family`; empty for all.
        folder: folder of the sources; a template.
        values: values for the templates, in addition to the common ones.
        style: style of the sources.
        memory: returns the attribute that places an array in a memory, and the header that defines it.
        main: name of the main source, if it is not the usual one.
    """

    name: str
    kernels: frozenset[str]
    families: frozenset[str]
    folder: str
    values: Callable[[Build], dict[str, str]]
    style: SourceStyle
    memory: Callable[[Bank], tuple[str, str]]
    main: str = ""

    def require(self, machine: Machine) -> None:
        """Check that such a project supports a machine and its kernels.

        Raises:
            RequestError: it does not; the message lists what it supports.
        """
        self.require_part(machine)
        kernels = machine.kernels.name.partition("@")[0]
        if kernels not in self.kernels:
            raise RequestError(
                f"a project for {self.name} can't be built with {machine.kernels.name} kernels; "
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
