"""The message of a TFLM release about an operator that its resolver lacks."""

from __future__ import annotations

from tflm.releases import Release
from tflm.schema.enums import BuiltinOperator

LAST_BUILTINS = (
    ("", 140),
    ("fcbc8d614", 141),
    ("54a04cbed", 144),
    ("a7f2a887b", 145),
    ("0f40100fc", 146),
    ("90ed783b4", 147),
    ("0d3627d1d", 148),
    ("04a6af47e", 149),
    ("4a6ca505b", 150),
    ("e6d85a150", 151),
    ("f76067002", 152),
    ("4b54460be", 153),
    ("0c8c12342", 156),
    ("38c0b01df", 157),
    ("313630deb", 158),
    ("857f46701", 159),
    ("e10c360b1", 161),
    ("aa61a9151", 162),
    ("3c1c19b46", 166),
    ("389d8f53d", 172),
    ("b4060efe0", 174),
    ("c795f31e9", 189),
    ("a72c0554b", 202),
    ("f800eb802", 203),
    ("2f2c74467", 204),
    ("4bbdef5f8", 205),
    ("fc498a804", 206),
    ("011a68423", 208),
    ("39ba5a848", 209),
)
"""The number of the schema's last builtin operator, with the commit that added it."""

OWN_RESOLVER = "77cc07a32"
"""The commit from which the message is TFLM's own; before, it was TFLite's, which includes the version."""


def message(release: Release, operator: str, version: int) -> str:
    """What TFLM logs before AllocateTensors() fails.

    Args:
        operator: builtin name or custom name.
        version: the version that the model asks for.
    """
    if operator not in BuiltinOperator.__members__:
        return "Failed to get registration from op code CUSTOM"
    number = BuiltinOperator[operator].value
    own = release.holds(OWN_RESOLVER)
    if number > max(last for commit, last in LAST_BUILTINS if release.holds(commit)):
        hint = "" if own else " Are you using old TFLite binary with newer model?"
        return f"Op builtin_code out of range: {number}.{hint}"
    hint = (
        ""
        if own
        else f" version '{version}'. An older version of this builtin might be supported. "
        "Are you using an old TFLite binary with a newer model?"
    )
    return f"Didn't find op for builtin opcode '{operator}'{hint}"
