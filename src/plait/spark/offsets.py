"""Where a stream that reads a table stands: what Spark keeps in its checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from plait.errors import OptionError


@dataclass(frozen=True, slots=True)
class Offset:
    """Commits up to ``version`` are delivered.

    Spark does not keep a stream's first offset, and asks for it again if it must repeat the first
    batch. So the first one says nothing, and every other says where the stream began too.
    """

    version: int = -1
    """-1: nothing yet."""
    began: int = -1
    """The version after which the stream began; -1: with all rows of a version."""
    files: int | None = None
    """So many files of the first rows are delivered; None: all."""
    table: str = ""
    """The identity of the table: another one in its place has other versions."""

    @property
    def first(self) -> bool:
        """Whether the stream has not begun."""
        return self.version < 0

    def to_dict(self) -> dict[str, int | str]:
        """Write it as JSON values."""
        if self.first:
            return {"version": -1}
        known: dict[str, int | str] = {"version": self.version, "began": self.began}
        if self.files is not None:
            known["files"] = self.files
        return {**known, "table": self.table}

    @classmethod
    def from_dict(cls, value: Mapping[str, object]) -> Offset:
        """Read what ``to_dict`` wrote; raise OptionError for anything else."""
        try:
            numbers = {name: _number(value[name]) for name in value if name != "table"}
            return cls(**numbers, table=str(value.get("table", "")))
        except TypeError as error:
            message = (
                f"the checkpoint contains {str(value)[:120]}, which is not an offset of a table"
            )
            hint = "use the stream's previous checkpoint, or a new one"
            raise OptionError(message, hint=hint, key="offset", value=str(value)) from error


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(value)
    return value
