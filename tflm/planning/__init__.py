"""Memory plans that are smaller than TFLM's own, computed offline and stored in the model, where TFLM uses them."""

from tflm.planning.memories_plan import MemoriesPlan, MemoryShare
from tflm.planning.model_plan import plan
from tflm.planning.plan_report import ModelPlan

__all__ = ["MemoriesPlan", "MemoryShare", "ModelPlan", "plan"]
