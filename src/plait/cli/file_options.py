"""Options of a command from a file, TOML or YAML, under the names that they have on the line."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click

from plait.errors import MissingDependencyError, OptionError

_YAML: Final = (".yaml", ".yml")


def file_option(names: str = "--file") -> click.Option:
    """Make the option that reads the others from a file; what stands on the line wins."""
    return click.Option(
        [names],
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        is_eager=True,
        expose_value=False,
        callback=_load,
        help="A TOML or YAML file with these options; those given here win.",
    )


def _load(context: click.Context, parameter: click.Parameter, path: Path | None) -> None:
    if path is None:
        return
    known = {_written(each): each for each in context.command.params if each is not parameter}
    values: dict[str, object] = {}
    for key, value in _read(path).items():
        option = known.get(key)
        if option is None:
            near = difflib.get_close_matches(key, known, n=1)
            message = f"{path}: unknown option {key!r}"
            hint = f"did you mean {near[0]!r}?" if near else f"one of {', '.join(sorted(known))}"
            raise OptionError(message, hint=hint, key=key, value="", nearest=near)
        values[str(option.name)] = _value_of(option, value)
    context.default_map = values


def _written(parameter: click.Parameter) -> str:
    """Return the name of an option in a file: that of the line, without its dashes."""
    return max(parameter.opts, key=len).lstrip("-")


def _value_of(option: click.Parameter, value: object) -> object:
    """Return a value as the line would give it: a table stands for ``KEY=VALUE``, repeated."""
    if isinstance(value, Mapping):
        value = [f"{key}={_text(each)}" for key, each in value.items()]
    if isinstance(option, click.Option) and option.multiple:
        return [_text(each) for each in (value if isinstance(value, list) else [value])]
    return value if isinstance(value, bool) else _text(value)


def _text(value: object) -> str:
    """Write a value as on the line; YAML and TOML have ``true`` where Python has ``True``."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _read(path: Path) -> Mapping[str, object]:
    """Read a file.

    Raises:
        OptionError: it is neither TOML nor YAML, or no table of options.
        MissingDependencyError: it is YAML, and PyYAML is not installed.
    """
    try:
        text = path.read_text(encoding="utf-8")
        values = _yaml(text) if path.suffix in _YAML else tomllib.loads(text)
    except (OSError, ValueError) as error:
        message = f"{path} cannot be read: {error}"
        hint = "TOML if its name ends in .toml, YAML if in .yaml or .yml"
        raise OptionError(message, hint=hint, key="file", value=str(path)) from error
    if not isinstance(values, Mapping) or not all(isinstance(key, str) for key in values):
        message = f"{path} has no options"
        raise OptionError(message, hint="write NAME: VALUE", key="file", value=str(path))
    return values


def _yaml(text: str) -> object:
    try:
        import yaml  # noqa: PLC0415 - an extra
    except ImportError as error:
        message = "a YAML file needs the library PyYAML"
        raise MissingDependencyError(message, hint="pip install 'plait[kafka]'") from error
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(error) from error
