"""A number of bytes on the command line, written as in the options of a table."""

from __future__ import annotations

import click

from plait.errors import OptionError
from plait.model.contract import Option


class Size(click.ParamType[int]):
    """Reads ``512MiB`` as a number of bytes."""

    name = "size"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Return the bytes; a usage error if it is no size."""
        try:
            return int(Option("size", "size", "0", "").parse(str(value)))
        except OptionError as error:
            self.fail(str(error), param, ctx)
