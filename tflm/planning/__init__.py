"""Smaller memory plans, made beforehand and written into a model, where TFLM finds and obeys them."""

from tflm.planning.model_plan import ModelPlan, plan

__all__ = ["ModelPlan", "plan"]
