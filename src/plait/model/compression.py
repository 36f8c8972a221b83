"""How data files are compressed, as the options of a table say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

from plait.errors import OptionError
from plait.model.contract import CODECS, Options

CODEC_OPTION: Final = "file.compression"
LEVEL_OPTION: Final = "file.compression.level"
_LEVELS: Final = {"zstd": 22, "gzip": 9}
"""The highest level of each codec that has levels; the lowest is 1."""


@dataclass(frozen=True, slots=True)
class Compression:
    """A codec of Parquet, and its level."""

    codec: str = CODECS[0]
    level: int | None = None
    """None: as the codec has it by itself."""

    @classmethod
    def of(cls, options: Options) -> Self:
        """Return what a table's options say.

        Raises:
            OptionError: the codec has no such level.

        >>> Compression.of(Options.of({"file.compression": "zstd", "file.compression.level": 9}))
        Compression(codec='zstd', level=9)
        """
        codec, level = options.choice(CODEC_OPTION), options.count(LEVEL_OPTION)
        if not level:
            return cls(codec)
        most = _LEVELS.get(codec, 0)
        if level > most:
            message = f"{LEVEL_OPTION}={level} is not a level of {codec}"
            allowed = f"use 1 to {most}" if most else f"{codec} has no levels"
            hint = f"{allowed}; 0 leaves the level to the codec"
            raise OptionError(message, hint=hint, key=LEVEL_OPTION, value=str(level))
        return cls(codec, level)
