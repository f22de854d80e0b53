"""Rewrites that make a model run in less memory with bit-identical outputs."""

from tflm.rewriting.resizing import resize
from tflm.rewriting.simplify import strip
from tflm.rewriting.tiled_model import TiledModel, TiledStage, fold, tile

__all__ = ["TiledModel", "TiledStage", "fold", "resize", "strip", "tile"]
