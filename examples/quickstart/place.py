"""Where a quickstart lives, and what of a previous one may be removed."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from plait.cli.exits import RefusedError

MARKER = ".plait-quickstart"
_TABLE, _RUN = "flights", "run"


@dataclass(frozen=True, slots=True)
class Place:
    """A directory that holds a quickstart table, and while it runs its workspace."""

    directory: Path
    others: tuple[str, ...] = ()
    """What else the quickstart makes in it."""

    @property
    def table(self) -> Path:
        """The table."""
        return self.directory / _TABLE

    @property
    def workspace(self) -> Path:
        """Logs and events; removed after success, kept after failure."""
        return self.directory / _RUN

    def prepare(self, *, force: bool) -> None:
        """Make an empty place; with ``force`` remove a previous quickstart, and only that.

        Raises:
            RefusedError: there is something that is not a quickstart's.

        """
        names = {entry.name for entry in self.directory.iterdir()} if self._there() else set()
        foreign = sorted(names - {MARKER, _TABLE, _RUN, *self.others})
        if foreign or (names and MARKER not in names):
            message = f"{self.directory} holds what no quickstart made: {_some(foreign or names)}"
            raise RefusedError(message, hint="choose another --directory")
        if names and not force:
            message = f"{self.directory} holds a previous quickstart"
            raise RefusedError(message, hint="--force removes it; or choose another --directory")
        for name in names & {_TABLE, _RUN, *self.others}:
            path = self.directory / name
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        self.workspace.mkdir(parents=True)
        (self.directory / MARKER).write_text("made by tablectl quickstart\n", encoding="utf-8")

    def _there(self) -> bool:
        if self.directory.exists() and not self.directory.is_dir():
            message = f"{self.directory} is not a directory"
            raise RefusedError(message, hint="choose another --directory")
        return self.directory.exists()

    def tidy(self) -> None:
        """Remove the workspace."""
        shutil.rmtree(self.workspace, ignore_errors=True)


def _some(names: list[str] | set[str]) -> str:
    ordered = sorted(names)
    return ", ".join(ordered[:3]) + (", ..." if len(ordered) > 3 else "")  # noqa: PLR2004 - a few
