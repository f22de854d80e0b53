"""A model's file with the versions that its operators need."""

from __future__ import annotations

from tflm.schema.model import Model, require_model
from tflm.schema.patch import with_data_inside
from tflm.schema.reader import read_model
from tflm.schema.writer import write_model
from tflm.versioning import set_versions


def update_versions(model: Model, *, downgrade: bool = True) -> bytes:
    """Return the model with the versions that its builtin operators need, as determined by TFLite's tools.

    The metadata `min_runtime_version` is set to the first TensorFlow Lite runtime that has them all. Nothing else
    changes, and the model computes what it did. Custom operators keep their versions.

    Args:
        downgrade: also lower versions whose features are not used. Otherwise such versions stay.

    Raises:
        ArgumentError: the model is none.
    """
    root = read_model(with_data_inside(require_model(model)).data)
    set_versions(root, downgrade=downgrade)
    return write_model(root)
