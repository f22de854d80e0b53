"""Flex: TensorFlow's operators in a model, run on the host.

`node_def` reads the options; a module for each family holds functions of numpy, found in `registry`; `tensorflow` runs
any operator where TensorFlow is installed; `delegate` is what takes them.
"""
