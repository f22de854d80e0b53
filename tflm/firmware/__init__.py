"""What a model costs a firmware besides its arena: flash, static RAM and time.

May import everything below planning; nothing here runs a model.
"""
