"""Blocks on a terminal, through rich; the only renderer file that imports it."""

from __future__ import annotations

from typing import TextIO

from rich.console import Console, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from plait.cli.view import Block, Facts, Grid, cell, visible


def write_rich(blocks: tuple[Block, ...], stream: TextIO, *, color: bool) -> None:
    """Write blocks to a terminal."""
    console = Console(file=stream, no_color=not color, highlight=False, markup=False)
    for block in blocks:
        console.print(renderable(block))


def renderable(block: Block) -> RenderableType:
    """Return a block as rich draws it; values are never read as markup."""
    if isinstance(block, Grid):
        return _grid(block)
    if isinstance(block, Facts):
        table = RichTable(box=None, show_header=False, title=block.title or None)
        table.title_justify = "left"
        table.add_column(style="bold")
        table.add_column(overflow="fold")
        for name, value in block.pairs:
            table.add_row(Text(name), Text(cell(value)))
        return table
    return Text(visible(block.text))


def _grid(block: Grid) -> RichTable:
    table = RichTable(title=block.title or None, title_justify="left", header_style="bold")
    for column in block.columns:
        side = "right" if column.startswith(">") else "left"
        table.add_column(column.lstrip(">"), justify=side, overflow="fold")  # type: ignore[arg-type]  # a Literal
    for row in block.rows:
        table.add_row(*(Text(cell(value)) for value in row))
    return table
