"""Data outside of a model's tables: in the same file, after the flatbuffer.

Converters write large constants there because a flatbuffer can't exceed 2 GiB. The table then has an offset from the
start of the file and a size instead of a vector of bytes. TFLite reads such data; for TFLM, the vector is missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tflm.errors import ModelError
from tflm.schema.layout import Table
from tflm.schema.tables import Buffer, Model, Operator

LARGEST_PLACEHOLDER = 1
"""The offset and size that writers store in a table whose data is inside."""


class OutsideFields(NamedTuple):
    """The fields of a table whose data may be outside: the vector, and the offset and size of data outside."""

    data: str
    offset: str
    size: str


OUTSIDE_FIELDS: dict[type[Table], OutsideFields] = {
    Buffer: OutsideFields("data", "offset", "size"),
    Operator: OutsideFields("custom_options", "large_custom_options_offset", "large_custom_options_size"),
}


class Outside(NamedTuple):
    """The data of a model that is outside of its tables.

    Attributes:
        places: paths of the tables that own the data; it was copied to them as views.
        errors: errors about data beyond the end of the file.
    """

    places: tuple[str, ...]
    errors: list[ModelError]


def take_data_inside(model: Model, data: memoryview) -> Outside:
    """Put data from outside into the tables that own it.

    Args:
        model: read from the file; changed in place.
        data: the file's bytes; the tables get views into them.
    """
    places, errors = [], []
    for place, table in _tables(model):
        fields = OUTSIDE_FIELDS[type(table)]
        offset, size = getattr(table, fields.offset), getattr(table, fields.size)
        if getattr(table, fields.data) or offset <= LARGEST_PLACEHOLDER:
            continue
        if offset + size > len(data):
            reason = (
                f"leads outside of the model itself: {size} bytes at byte {offset} of {len(data)}: the file was "
                f"cut off, with at least {offset + size - len(data):,} bytes missing, or damaged"
            )
            errors.append(ModelError(reason, table=type(table).__name__, field=fields.offset, place=place))
        elif size:
            places.append(place)
            setattr(table, fields.data, data[offset : offset + size])
            setattr(table, fields.offset, 0)
            setattr(table, fields.size, 0)
    return Outside(tuple(places), errors)


def _tables(model: Model) -> Iterator[tuple[str, Table]]:
    for i, buffer in enumerate(model.buffers or ()):
        yield f"buffers[{i}]", buffer
    for i, subgraph in enumerate(model.subgraphs or ()):
        for j, operator in enumerate(subgraph.operators or ()):
            yield f"subgraphs[{i}].operators[{j}]", operator
