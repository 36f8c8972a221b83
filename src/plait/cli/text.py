"""Text for people: aligned columns in a pipe, tables with borders on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

import click

from plait.cli.exits import Failure
from plait.cli.render import Streams
from plait.cli.view import Block, Facts, Grid, View, cell, visible

if TYPE_CHECKING:
    from rich.console import Console as RichConsole
    from rich.table import Table as RichTable

_UNLIMITED = 1_000_000
"""The width of a pipe: lines are never folded there."""


class TextRenderer:
    """Text; colour and borders only on a terminal."""

    def __init__(self, streams: Streams, *, color: bool, quiet: bool, wide: bool = False) -> None:
        self._streams = streams
        self._color = color
        self._quiet = quiet
        self._wide = wide

    def show(self, view: View) -> None:
        """Write the blocks."""
        left_out = write_blocks(view.blocks, self._streams.out, color=self._color, wide=self._wide)
        if left_out and not self._quiet:
            self._streams.err.write(f"--wide also shows: {', '.join(left_out)}\n")

    def preview(self, view: View) -> None:
        """Write the plan, unless only results are wanted."""
        if not self._quiet:
            self.show(view)

    def error(self, failure: Failure, *, command: str, table: str | None) -> None:  # noqa: ARG002 - the message names what it is about
        """Write ``error[code]: ...`` and ``hint: ...``."""
        head = click.style(f"error[{failure.code}]:", fg="red", bold=True)
        lines = f"{head} {visible(failure.message)}\n"
        if failure.hint:
            lines += f"{click.style('hint:', bold=True)} {visible(failure.hint)}\n"
        styled = self._color and self._streams.err.isatty()
        self._streams.err.write(lines if styled else click.unstyle(lines))


def write_blocks(
    blocks: tuple[Block, ...], stream: TextIO, *, color: bool, wide: bool = False
) -> list[str]:
    """Write blocks; values are never read as markup.

    Returns:
        The titles of the columns for which the terminal is too narrow.
    """
    from rich.console import Console  # noqa: PLC0415 - rich loads only for text
    from rich.text import Text  # noqa: PLC0415

    terminal = stream.isatty()
    width = None if terminal and not wide else _UNLIMITED
    console = Console(file=stream, width=width, no_color=not color, highlight=False, markup=False)
    left_out: list[str] = []
    with console.capture() as capture:
        for at, block in enumerate(blocks):
            if at and not terminal:
                console.print()
            if isinstance(block, Facts) and block.title:
                console.print(Text(block.title))
            if isinstance(block, Grid) and terminal:
                grid, missing = _narrowed(block, console)
                left_out += missing
                console.print(_table(grid, borders=True))
            elif isinstance(block, Facts | Grid):
                console.print(_table(block, borders=terminal))
            else:
                console.print(Text(visible(block.text).rstrip("\n")))
    stream.writelines(f"{line.rstrip()}\n" for line in capture.get().splitlines())
    return left_out


def _narrowed(grid: Grid, console: RichConsole) -> tuple[Grid, list[str]]:
    """Return a grid with as many of its spare columns as fit into a terminal, and the others.

    One without any value is the first to go.
    """
    from rich.measure import Measurement  # noqa: PLC0415 - rich loads only for text

    unlimited = console.options.update(max_width=_UNLIMITED)

    def without(titles: list[str]) -> Grid:
        kept = [at for at, title in enumerate(grid.columns) if title not in titles]
        rows = [[row[at] for at in kept] for row in grid.rows]
        return Grid(tuple(grid.columns[at] for at in kept), rows)

    def is_empty(title: str) -> bool:
        at = grid.columns.index(title)
        return all(cell(row[at]) in ("-", "0") for row in grid.rows)

    left_out = sorted(grid.spare, key=is_empty, reverse=True)
    for title in reversed(left_out):
        others = [each for each in left_out if each != title]
        table = _table(without(others), borders=True)
        if Measurement.get(console, unlimited, table).maximum <= console.width:
            left_out = others
    return without(left_out), [title.lstrip(">") for title in left_out]


def _table(block: Facts | Grid, *, borders: bool) -> RichTable:
    from rich import box  # noqa: PLC0415
    from rich.table import Table as RichTable  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    framed = borders and isinstance(block, Grid)
    table = RichTable(
        box=box.HEAVY_HEAD if framed else None,
        show_header=isinstance(block, Grid),
        header_style="bold",
        padding=(0, 1) if framed else (0, 2, 0, 0),
        pad_edge=framed,
    )
    if isinstance(block, Grid):
        for name in block.columns:
            right, title = name.startswith(">"), name.lstrip(">")
            table.add_column(
                Text(title),
                justify="right" if right else "left",
                overflow="fold",
                min_width=max(map(len, title.split()), default=1),
            )
        rows = block.rows
    else:
        table.add_column(style="bold")
        table.add_column(overflow="fold")
        rows = block.pairs
    for row in rows:
        table.add_row(*(Text(cell(value)) for value in row))
    return table
