"""Evaluates a model on a whole data set with the device's integers: samples, workers, results, metrics.

May import every package except `application` and `cli`. Metrics come from scikit-learn where it has them, parallel work
from the standard library or from Dask.
"""

from __future__ import annotations

from tflm.evaluation.calibration import CalibrationReport, TensorRange, calibrate_report
from tflm.evaluation.evaluation import Evaluation, evaluate

__all__ = ["CalibrationReport", "Evaluation", "TensorRange", "calibrate_report", "evaluate"]
