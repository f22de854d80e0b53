"""Smaller graphs: models rewritten so that they run in less memory, with every bit of their answers."""

from tflm.rewriting.shapes import resize
from tflm.rewriting.strip import strip
from tflm.rewriting.tiled_model import TiledModel, TiledStage, fold, tile

__all__ = ["TiledModel", "TiledStage", "fold", "resize", "strip", "tile"]
