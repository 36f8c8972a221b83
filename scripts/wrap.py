"""Wrap the paragraphs of our Markdown pages at 100 columns; ``--check`` only names the pages.

Only paragraphs and list items with a longer line are wrapped anew. Tables, blocks of code,
headings, comments and pages that a program makes stay as they are, and no line is cut inside of
code or of the address of a link. ``make fmt`` runs this.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COLUMNS = 100
MADE = "<!-- made by "
"""How a page begins that a program writes."""

_FENCE = re.compile(r"\s*(```|~~~)")
_ITEM = re.compile(r"(\s*)([-*+]|\d+[.)])( +)(?:\[[ x]\] )?")
_VERBATIM = re.compile(r"\s*(\||#|<!--|>|!!!|\[[^]]+\]:|---$)")
"""Tables, headings, comments, quotes, admonitions, definitions of links, rules."""
_WHOLE = re.compile(r"(?:`+[^`]*`+|\]\([^)]*\)|[^\s`]|`)+")
"""What no line break may cut: a word, with the code and the addresses in it."""
_MARKER = re.compile(r"(?:[-+*>|=]+|#{1,6}|\d+[.)]|```.*|~~~.*|<!--.*)$")
"""A word that would begin something else than a line of text."""


@dataclass(slots=True)
class Paragraph:
    """A paragraph or an item of a list, in the lines of the page."""

    first: str
    """What stands before the first word: a marker, or an indentation."""
    rest: str
    """What stands before the other lines."""
    lines: list[str] = field(default_factory=list)

    def wrapped(self) -> Iterator[str]:
        """Return its lines, wrapped anew if one of them is too long."""
        if all(len(line) <= COLUMNS for line in self.lines):
            yield from self.lines
            return
        text = " ".join(line.strip() for line in self.lines).removeprefix(self.first.strip())
        line = self.first
        for word in words(text):
            end = "" if line in {self.first, self.rest} else " "
            if end and len(line) + 1 + len(word) > COLUMNS:
                yield line
                line, end = self.rest, ""
            line += end + word
        yield line


def words(text: str) -> list[str]:
    """Cut a text where a line may end."""
    found: list[str] = []
    for word in _WHOLE.findall(text):
        if found and _MARKER.match(word):
            found[-1] += f" {word}"
        else:
            found.append(word)
    return found


def wrap(text: str) -> str:
    """Return a page with no line that is too long and could be shorter."""
    if text.startswith(MADE):
        return text
    done: list[str] = []
    open_: Paragraph | None = None
    verbatim = ""
    for number, line in enumerate(text.splitlines()):
        if verbatim or not line.strip() or _FENCE.match(line) or _VERBATIM.match(line):
            done += open_.wrapped() if open_ else ()
            open_ = None
            verbatim = after(verbatim, line, number)
            done.append(line)
        elif open_ is None or _ITEM.match(line):
            done += open_.wrapped() if open_ else ()
            item = _ITEM.match(line)
            first = item[0] if item else line[: len(line) - len(line.lstrip())]
            marker = len(item[1] + item[2] + item[3]) if item else len(first)
            open_ = Paragraph(first, " " * marker, [line])
        else:
            open_.lines.append(line)
    done += open_.wrapped() if open_ else ()
    return "\n".join(done) + "\n"


def after(verbatim: str, line: str, number: int) -> str:
    """Return what ends the part that is not wrapped, after a line of it; nothing outside."""
    if verbatim:
        return "" if line.strip().startswith(verbatim) or line.endswith(verbatim) else verbatim
    if number == 0 and line == "---":  # the head of a template of GitHub
        return "---"
    if fence := _FENCE.match(line):
        return fence[1]
    return "-->" if line.lstrip().startswith("<!--") and "-->" not in line else ""


def our_pages() -> list[Path]:
    """Return every Markdown page of the repository; those that Git ignores are not ours."""
    command = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md")
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    pages = (ROOT / name for name in sorted(listed.split("\0")) if name)
    return [page for page in pages if page.is_file()]


def main() -> int:
    """Wrap the pages, or say which are not wrapped."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if a line is long")
    check = parser.parse_args().check
    long = []
    for page in our_pages():
        text = page.read_text(encoding="utf-8")
        if (wrapped := wrap(text)) != text:
            long.append(page.relative_to(ROOT).as_posix())
            if not check:
                page.write_text(wrapped, encoding="utf-8")
    if long:
        print(f"{'longer than' if check else 'wrapped at'} {COLUMNS}: {', '.join(long)}")
    return 1 if check and long else 0


if __name__ == "__main__":
    sys.exit(main())
