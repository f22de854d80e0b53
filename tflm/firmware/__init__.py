"""Costs of a model in firmware other than its arena: flash, static RAM and time. Nothing here runs a model.

May import the packages below `planning`.
"""
