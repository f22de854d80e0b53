"""Flex: TensorFlow's operators in a model, run on the host.

`node_def` reads the options of an operator. `registry` holds the functions that compute operators with numpy, from one
module per family. `tensorflow` runs any operator where TensorFlow is installed. `delegate` takes the nodes.
"""
