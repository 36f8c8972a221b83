"""Options of a command from a file, TOML or YAML, under the names that they have on the line."""

from __future__ import annotations

import difflib
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import click

from plait.errors import MissingDependencyError, OptionError

_YAML: Final = (".yaml", ".yml")
_BYTES_MAX: Final = 1 << 20
_DEPTH_MAX: Final = 32


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
        values[str(option.name)] = _value_of(path, key, option, value)
    context.default_map = values


def _written(parameter: click.Parameter) -> str:
    """Return the name of an option in a file: that of the line, without its dashes."""
    return max(parameter.opts, key=len).lstrip("-")


def _value_of(path: Path, key: str, option: click.Parameter, value: object) -> object:
    """Return a value as the line would give it: a table stands for ``KEY=VALUE``, repeated."""
    if not (isinstance(option, click.Option) and option.multiple):
        flag = isinstance(option, click.Option) and option.is_flag
        if isinstance(value, (Mapping, list)) or (isinstance(value, bool) and not flag):
            raise _misfit(path, key, "takes one value", "write a text in quotes, or a number")
        return value if isinstance(value, bool) else _text(path, key, value)
    if isinstance(value, Mapping) and option.callback is not None:  # of pairs
        return [f"{name}={text}" for name, text in _pairs(path, key, value)]
    many = value if isinstance(value, list) else [value]
    if any(isinstance(each, (Mapping, list)) for each in many):
        raise _misfit(path, key, "takes values", "write texts in quotes, or a list of them")
    return [_text(path, key, each) for each in many]


def _pairs(
    path: Path, key: str, value: Mapping[str, object], depth: int = 0
) -> Iterator[tuple[str, str]]:
    """Return names and values; a table in a table is a name with a dot, as TOML reads it."""
    if depth > _DEPTH_MAX:  # an alias of YAML may contain itself
        raise _misfit(path, key, "is nested too deeply", "write names with dots")
    for name, each in value.items():
        if isinstance(each, Mapping):
            yield from (
                (f"{name}.{inner}", text) for inner, text in _pairs(path, key, each, depth + 1)
            )
        elif isinstance(each, list):
            raise _misfit(path, key, "takes values", f"write one for {name!r}")
        else:
            yield str(name), _text(path, key, each)


def _text(path: Path, key: str, value: object) -> str:
    """Write a value as on the line; YAML and TOML have ``true`` where Python has ``True``."""
    if value is None:
        raise _misfit(path, key, "has no value", "leave it out, or write a value")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _misfit(path: Path, key: str, what: str, hint: str) -> OptionError:
    return OptionError(f"{path}: option {key!r} {what}", hint=hint, key=key, value="")


def _read(path: Path) -> Mapping[str, object]:
    """Read a file.

    Raises:
        OptionError: it is neither TOML nor YAML, or no table of options.
        MissingDependencyError: it is YAML, and PyYAML is not installed.
    """
    try:
        with path.open("rb") as file:
            body = file.read(_BYTES_MAX + 1)
        if len(body) > _BYTES_MAX:
            raise ValueError(f"it has more than {_BYTES_MAX} bytes")
        text = body.decode()
        values = _yaml(text) if path.suffix in _YAML else tomllib.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else f"{error}"
        message = f"{path} cannot be read: {why:.300}"
        hint = "TOML if its name ends in .toml, YAML if in .yaml or .yml"
        raise OptionError(message, hint=hint, key="file", value=str(path)) from error
    if not isinstance(values, Mapping):
        message = f"{path} has no options"
        raise OptionError(message, hint="write NAME: VALUE", key="file", value=str(path))
    for key in values:
        if not isinstance(key, str):
            message = f"{path}: {key!r} is no name of an option"
            raise OptionError(message, hint="write NAME: VALUE", key="file", value=str(path))
    return values


def _yaml(text: str) -> object:
    try:
        import yaml  # noqa: PLC0415 - an extra
    except ImportError as error:
        message = "a YAML file needs the library PyYAML"
        raise MissingDependencyError(message, hint="pip install 'plait[kafka]'") from error

    class Loader(yaml.SafeLoader):
        """Refuses a name that comes twice, of which YAML's own would take the last."""

        def construct_mapping(
            self,
            node: yaml.MappingNode,
            deep: bool = False,  # noqa: FBT001, FBT002 - the signature is PyYAML's
        ) -> dict[object, object]:
            names = [each.value for each, _ in node.value if isinstance(each, yaml.ScalarNode)]
            twice = [name for name, count in Counter(names).items() if count > 1]
            if twice:
                raise ValueError(f"it has {twice[0]!r} twice")
            made: dict[object, object] = super().construct_mapping(node, deep=deep)
            return made

    try:
        return yaml.load(text, Loader)  # noqa: S506 - it is a safe one
    except yaml.YAMLError as error:
        raise ValueError(error) from error
