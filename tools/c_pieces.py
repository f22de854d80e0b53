"""Split a C++ source into structures, functions and constants by name, each with a hash of its tokens.

This is not a C++ parser: it handles only tokens, brackets, and the text before a brace. That is enough to detect
whether a piece has changed; comments, white space and the order of pieces do not matter.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

TOKEN = re.compile(
    r'R"\((?:.|\n)*?\)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|[A-Za-z_]\w*|\.?\d(?:[\w.]|[eEpP][+-])*|::|->|[^\s\w]'
)
COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|("(?:\\.|[^"\\\n])*")', re.DOTALL)
WORD = re.compile(r"[A-Za-z_]\w*")
AGGREGATES = ("struct", "class", "union", "enum")
CLOSING = {"{": "}", "(": ")"}
HASH_DIGITS = 12


class Piece(NamedTuple):
    """A named part of a source.

    Attributes:
        kind: "structure", "function" or "constant".
        name: the name with its class, if any; pieces with the same name, such as overloads, are merged.
        tokens: its tokens; for a structure, only its fields.
    """

    kind: str
    name: str
    tokens: tuple[str, ...]


def pieces_of(text: str) -> dict[tuple[str, str], tuple[str, ...]]:
    """The tokens of every piece of a source, by kind and name."""
    bare = _without_directives(COMMENT.sub(lambda match: match[1] or " ", text))
    found: dict[tuple[str, str], tuple[str, ...]] = {}
    for piece in _pieces(TOKEN.findall(bare), ""):
        key = piece.kind, piece.name
        found[key] = found.get(key, ()) + piece.tokens
    return found


def _without_directives(text: str) -> str:
    """A source with all branches of its `#if`s; if they open a brace, only the first branch."""
    text = re.sub(r"\\\n", " ", text)
    blocks: list[list[str]] = [[""]]  # of each #if that is open, its branches
    for line in text.splitlines():
        directive = re.match(r"\s*#\s*(\w*)", line)
        if directive is None:
            blocks[-1][-1] += line + "\n"
        elif directive[1].startswith("if"):
            blocks.append([""])
        elif directive[1].startswith("el"):
            blocks[-1].append("")
        elif directive[1] == "endif" and len(blocks) > 1:
            branches = blocks.pop()
            is_open = branches[0].count("{") != branches[0].count("}")
            blocks[-1][-1] += branches[0] if is_open else "".join(branches)
    return "".join(branch for block in blocks for branch in block)


def hash_of(tokens: Sequence[str]) -> str:
    """The hash that identifies a piece."""
    return hashlib.sha1(" ".join(tokens).encode()).hexdigest()[:HASH_DIGITS]


def _pieces(tokens: Sequence[str], within: str) -> Iterator[Piece]:
    """Pieces at a level and inside its open braces; `within` is the class, followed by `::`."""
    start = at = 0
    while at < len(tokens):
        token = tokens[at]
        if token == "(":
            at = _end(tokens, at)
        elif token in (";", "}"):
            start = at = at + 1
        elif token == "{":
            end = _end(tokens, at)
            head, after = _without_template(tokens[start:at]), tokens[end : end + 1]
            yield from _piece(head, tokens[at + 1 : end - 1], after, within)
            start = at = end
        else:
            at += 1


def _without_template(head: Sequence[str]) -> Sequence[str]:
    """The text before a brace, without `template <...>`."""
    if head[:1] != ["template"]:
        return head
    depth = 0
    for place, token in enumerate(head):
        depth += (token == "<") - (token == ">")
        if place > 1 and depth == 0:
            return _without_template(head[place + 1 :])
    return head


def _piece(head: Sequence[str], body: Sequence[str], after: Sequence[str], within: str) -> Iterator[Piece]:
    """The piece that a brace opens, from the text before it; the name of a `typedef` follows it."""
    first = next((token for token in head if token in ("(", "=")), "")
    aggregate = next((word for word in AGGREGATES if word in head), "")
    if "namespace" in head or head[:1] == ["extern"]:
        yield from _pieces(body, within)
    elif aggregate and not first:
        words = [*head[head.index(aggregate) + 1 :], *after]
        words = [word for word in words if WORD.fullmatch(word) and word != "class"]
        name = within + (words[0] if words else "")
        yield Piece("structure", name, (*head, *(body if aggregate == "enum" else _fields(body))))
        if aggregate != "enum":
            yield from _pieces(body, f"{name}::")
    elif first == "=" and "operator" not in head:
        before = [word for word in head[: head.index("=")] if WORD.fullmatch(word)]
        yield Piece("constant", within + (before[-1] if before else ""), (*head, *body))
    elif first:
        yield Piece("function", within + _name_before(head, head.index("(")), (*head, *body))


def _name_before(head: Sequence[str], at: int) -> str:
    """The name of a function, such as `Class::Function`, whose parameters begin at a place."""
    name = head[at - 1] if at else ""
    while at >= 3 and head[at - 2] == "::":
        at -= 2
        name = f"{head[at - 1]}::{name}"
    return name


def _fields(body: Sequence[str]) -> Iterator[str]:
    """The tokens that determine a structure's size: no functions, but whether any of them is virtual."""
    start = at = 0
    while at < len(body):
        if body[at] in CLOSING:
            at = _end(body, at)
            statement = body[start:at]
            if body[at - 1] == "}" and ("(" in statement or at == len(body) or body[at] != ";"):
                yield from ["virtual"] if "virtual" in statement or "override" in statement else []
                start = at
        elif body[at] == ";":
            at += 1
            statement = body[start:at]
            if "(" not in statement:
                yield from statement
            elif "virtual" in statement or "override" in statement:
                yield "virtual"
            start = at
        else:
            at += 1


def _end(tokens: Sequence[str], at: int) -> int:
    """The position after the matching closing bracket, or the end if there is none."""
    opening, closing, depth = tokens[at], CLOSING[tokens[at]], 0
    for place in range(at, len(tokens)):
        depth += (tokens[place] == opening) - (tokens[place] == closing)
        if depth == 0:
            return place + 1
    return len(tokens)
