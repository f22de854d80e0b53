"""What a model costs a firmware beside its arena: flash, static RAM and time.

May import everything below planning; nothing here runs a model.
"""
