"""Streaming: rewrites a network over a window of frames to take only the new frames and keep what stays the same.

`time_rules` follows the time axis through the operators, `kept_rows` finds the rows that are the same in the next
window and decides which rows are computed and which are kept, and `stream_writer` writes that as operators of TFLM with
the kept rows in resource variables.
"""

from tflm.rewriting.streaming.streamed_model import StreamedLayer, StreamedModel, stream

__all__ = ["StreamedLayer", "StreamedModel", "stream"]
