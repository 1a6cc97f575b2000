"""The conditions in functions of PostgreSQL, for scripts/mutants."""

import re
from collections.abc import Iterator

FUNCTION = re.compile(
    r"^create (?:or replace )?function \$schema\.([a-z_]+?)(?:_\$version)?\(.*?^(?:end )?\$\$;", re.MULTILINE | re.DOTALL
)
#: What functions of PostgreSQL are made of; comments are left out.
PIECE = re.compile(r"""--[^\n]*|('(?:''|[^'])*'|[A-Za-z_$][\w$.]*|:=|[<>=!~|&]+|\S)""")
#: What ends the terms of a `where` or `having`, outside of parentheses.
ENDS_WHERE = {"group", "order", "limit", "union", "returning", "having", "for", "on", "loop", "into", ";", ")"}
ENDS = {"if": {"then"}, "elsif": {"then"}, "while": {"loop"}, "where": ENDS_WHERE, "having": ENDS_WHERE, ":=": {";"}}


def function_terms(words: list[str]) -> Iterator[tuple[int, int, str]]:
    """Yield the first and last words of terms, and what they are taken to be."""
    booleans = {words[n - 1] for n, word in enumerate(words) if word == "boolean"} | {"boolean", "rings"}
    cases: list[bool] = []  # those that are open: whether what follows `when` is a condition
    for n, word in enumerate(words):
        before = words[n - 1]
        if word == "case":
            cases.append(words[n + 1] == "when")
        elif word == "end" and cases:
            cases.pop()
        stops = ENDS.get(word, set())
        if word == "when":
            stops = {";"} if before in ("exit", "continue") else {"then"} if cases and cases[-1] else set()
        if not stops or (word == "if" and before == "end") or (word == ":=" and before not in booleans):
            continue
        end = span(words, n + 1, stops)
        if stops is ENDS_WHERE:
            yield from where_terms(words, n + 1, end)
        else:
            does_nothing = words[end + 1 : end + 4] == ["then", "null", ";"]  # it is there for what the condition does
            for first, last in leaves(words, n + 1, end):
                if words[first : last + 1] not in (["true"], ["false"], ["null"]):
                    yield from ((first, last, value) for value in (("false",) if does_nothing else ("true", "false")))


def where_terms(words: list[str], first: int, last: int) -> Iterator[tuple[int, int, str]]:
    parts, joined = split(words, first, last)
    if len(parts) == 1 and words[first : last + 1] != ["true"]:
        yield first, last, "true"
    for part in parts if joined else ():
        yield *part, "false" if joined == "or" else "true"
        if len(split(words, *part)[0]) > 1:
            yield from where_terms(words, *part)


def leaves(words: list[str], first: int, last: int) -> Iterator[tuple[int, int]]:
    parts, _ = split(words, first, last)
    if len(parts) == 1:
        yield first, last
    else:
        for part in parts:
            yield from leaves(words, *part)


def split(words: list[str], first: int, last: int) -> tuple[list[tuple[int, int]], str]:
    """Return the parts of a condition, and what joins them; a condition without `and` and `or` is one part."""
    while words[first] == "not" and words[first + 1] == "(" and span(words, first + 2, {")"}) == last - 1:
        first += 1
    while words[first] == "(" and span(words, first + 1, {")"}) == last - 1 and words[first + 1] != "select":
        first, last = first + 1, last - 1
    for joins in ("or", "and"):
        parts, at, begin, between = [], first, first, False
        while at <= last:
            at = span(words, at, {joins, "between"}, last) + 1
            if at <= last and words[at] == "between":
                between = True
            elif at > last or not between:
                parts.append((begin, at - 1))
                begin = at + 1
            else:
                between = False
            at += 1
        if len(parts) > 1:
            return parts, joins
    return [(first, last)], ""


def span(words: list[str], at: int, stops: set[str], last: int | None = None) -> int:
    """Return the last word before one of those that stop, outside of parentheses and of `case`."""
    depth = 0
    while at <= (len(words) - 1 if last is None else last):
        word = words[at]
        if not depth and (word in stops or word == ")"):
            break
        depth += (word in ("(", "[", "case")) - (word in (")", "]", "end"))
        at += 1
    return at - 1
