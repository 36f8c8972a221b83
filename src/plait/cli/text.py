"""Text for people: aligned columns in a pipe, rich tables on a terminal."""

from __future__ import annotations

from collections.abc import Callable
from typing import TextIO

import click

from plait.cli.exits import Failure
from plait.cli.render import Streams
from plait.cli.view import Block, Facts, Grid, View, cell, visible

Writer = Callable[[tuple[Block, ...]], None]


class TextRenderer:
    """Text; colour and borders only on a terminal."""

    def __init__(self, streams: Streams, *, color: bool, quiet: bool) -> None:
        self._streams = streams
        self._color = color
        self._quiet = quiet

    def show(self, view: View) -> None:
        """Write the blocks."""
        self._write(view.blocks, self._streams.out)

    def preview(self, view: View) -> None:
        """Write the plan, unless only results are wanted."""
        if not self._quiet:
            self._write(view.blocks, self._streams.out)

    def error(self, failure: Failure, *, command: str, table: str | None) -> None:  # noqa: ARG002 - the message names what it is about
        """Write ``error[code]: ...`` and ``hint: ...``."""
        head = click.style(f"error[{failure.code}]:", fg="red", bold=True)
        lines = f"{head} {visible(failure.message)}\n"
        if failure.hint:
            lines += f"{click.style('hint:', bold=True)} {visible(failure.hint)}\n"
        self._streams.err.write(lines if self._styled(self._streams.err) else click.unstyle(lines))

    def _styled(self, stream: TextIO) -> bool:
        return self._color and stream.isatty()

    def _write(self, blocks: tuple[Block, ...], stream: TextIO) -> None:
        if stream.isatty():
            from plait.cli.terminal import write_rich  # noqa: PLC0415 - rich loads only here

            write_rich(blocks, stream, color=self._color)
        else:
            stream.write("\n".join(plain_text(block) for block in blocks))


def plain_text(block: Block) -> str:
    """Write a block without colour or borders, each line ended."""
    if isinstance(block, Facts):
        width = max((len(name) for name, _ in block.pairs), default=0)
        lines = [f"{name.ljust(width)}  {cell(value)}" for name, value in block.pairs]
    elif isinstance(block, Grid):
        lines = _aligned(block)
    else:
        return visible(block.text).rstrip("\n") + "\n"
    head = [block.title] if block.title else []
    return "".join(f"{line.rstrip()}\n" for line in head + lines)


def _aligned(grid: Grid) -> list[str]:
    rows = [[column.lstrip(">") for column in grid.columns]]
    rows += [[cell(value) for value in row] for row in grid.rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(grid.columns))]
    right = [column.startswith(">") for column in grid.columns]
    return [
        "  ".join(
            text.rjust(width) if flush else text.ljust(width)
            for text, width, flush in zip(row, widths, right, strict=True)
        )
        for row in rows
    ]
