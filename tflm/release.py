"""The commits of TFLM whose results and arenas this version reproduces, and the project's address."""

from __future__ import annotations

TFLM_COMMIT = "90b983c2b"
"""The commit of tensorflow/tflite-micro for structures, arena requests and arithmetic."""

TFLM_DATE = "2026-08-20"

TFLM_WHEEL = "0.dev20261023182759"
"""The commit of the tflite-micro package, whose results are used where its later arithmetic differs."""

DISTRIBUTION = "pytflm"
"""The name of the package in registries."""


def project_url(label: str) -> str:
    """Return an address of the project from the package's metadata: of its `Repository` or `Documentation`."""
    from importlib.metadata import metadata  # takes a while to load

    urls = metadata(DISTRIBUTION).get_all("Project-URL") or []
    addresses: dict[str, str] = dict(url.split(", ", 1) for url in urls)
    return addresses[label]
