"""A model over a whole data set, with the device's integers: samples, workers, results and what they say.

May import everything below, and is imported by the command. Metrics come from scikit-learn where it has them, parallel
work from the standard library or from Dask.
"""

from __future__ import annotations

from tflm.evaluation.calibration import CalibrationReport, TensorRange, calibrate_report
from tflm.evaluation.evaluation import Evaluation, evaluate

__all__ = ["CalibrationReport", "Evaluation", "TensorRange", "calibrate_report", "evaluate"]
