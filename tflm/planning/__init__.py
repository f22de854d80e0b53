"""Smaller memory plans, made beforehand and written into a model, where TFLM finds and obeys them."""

from tflm.planning.model_plan import plan
from tflm.planning.plan_report import ModelPlan

__all__ = ["ModelPlan", "plan"]
