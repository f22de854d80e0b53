"""Firmware projects: a model's sources and the files of a build system, with TFLM or as C.

A module for each build system, `kinds` for their table, and their templates in `files/`.
"""

from __future__ import annotations

from tflm.application.projects.firmware import machine_of_project, project_files
from tflm.application.projects.kind import origin_of_project
from tflm.application.projects.kinds import project_kinds, usual_kind

__all__ = ["machine_of_project", "origin_of_project", "project_files", "project_kinds", "usual_kind"]
