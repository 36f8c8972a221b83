"""Ship Plait to executors that have none: one zip, which Spark unpacks beside each of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZIP_DEFLATED, ZipFile

from plait.errors import MissingDependencyError, OptionError
from plait.model.consent import absolute_path

PROVIDED = frozenset({"numpy", "pandas", "pyarrow", "pyspark"})
"""Stays behind: Spark's own Arrow functions need these on every executor, with or without Plait."""

_OURS = ("plait", "pyspark_plait")
_FOLDER = "plait-packages"
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_EXTRA = re.compile(r"""extra\s*==\s*['"]([A-Za-z0-9._-]+)['"]""")


def pack(path: str | Path, *, extras: str | Sequence[str] = ()) -> dict[str, str]:
    """Write Plait and what it imports into a zip; give the settings that bring it to executors.

    The executors need a Python of the same minor version and platform as this one, with numpy,
    pandas and pyarrow. The settings go to ``plait.spark.session``, to any other builder of
    sessions, or to ``spark-submit --conf``. A Spark that is running already takes none of them.

    >>> import tempfile
    >>> settings = pack(tempfile.mkdtemp() + "/plait.zip")
    >>> settings["spark.executorEnv.PYTHONPATH"]
    'plait-packages'

    Args:
        path: where the zip is written, from where Spark's driver can read it.
        extras: extras of Plait whose libraries executors need too, for example ``["s3"]``.

    Raises:
        OptionError: Plait has no such extra, or the name does not end in ``.zip``.
        MissingDependencyError: a library is not installed, or does not say which files it has.
        StorageError: the zip cannot be written there.
    """
    from plait.storage.scratch import explained  # noqa: PLC0415 - it brings pyarrow along

    place = Path(absolute_path(str(path)))
    if place.suffix != ".zip" or "#" in str(place):
        message = f"{str(path)!r} is not the name of a zip file"
        raise OptionError(message, hint="for example plait.zip", key="path", value=str(path))
    files = dict(_files((extras,) if isinstance(extras, str) else extras))
    hint = "free space there, or name a zip in another directory"
    with explained(str(place.parent), hint), TemporaryDirectory(dir=place.parent) as scratch:
        whole = Path(scratch, place.name)
        with ZipFile(whole, "w", ZIP_DEFLATED) as archive:
            for name in sorted(files):
                archive.write(files[name], name)
        whole.replace(place)  # at once, whoever else packs or ships it
    return {
        "spark.archives": f"{place.as_uri()}#{_FOLDER}",
        "spark.executorEnv.PYTHONPATH": _FOLDER,
    }


def _files(extras: Sequence[str]) -> Iterator[tuple[str, Path]]:
    """Return names in the zip and the files themselves."""
    ours = _installed("plait")
    known = set(ours.metadata.get_all("Provides-Extra") or ())
    for extra in extras:
        if extra not in known:
            hint = f"one of {', '.join(sorted(known))}"
            raise OptionError(f"Plait has no extra {extra!r}", hint=hint, key="extras", value=extra)
    for package in _OURS:
        yield from _modules(package)
    for found in _needed(ours, extras):
        yield from _files_of(found)


def _modules(package: str) -> Iterator[tuple[str, Path]]:
    """Find a package by its place: an editable installation names no files."""
    spec = find_spec(package)
    for root in (spec.submodule_search_locations or ()) if spec else ():
        for file in Path(root).rglob("*"):
            if file.is_file() and file.suffix != ".pyc":
                yield f"{package}/{file.relative_to(root).as_posix()}", file


def _needed(ours: Distribution, extras: Sequence[str]) -> Iterator[Distribution]:
    """Return Plait's distribution, and all that it requires but what executors have."""
    yield ours
    seen = {"plait", *PROVIDED}
    asked = [name for name, extra in _requires(ours) if extra in {None, *extras}]
    direct, wanted = frozenset(asked), asked
    while wanted:
        name = wanted.pop()
        if name in seen:
            continue
        seen.add(name)
        try:
            found = _installed(name)
        except MissingDependencyError:
            if name in direct:
                raise
            continue  # no marker is judged here: it may be for old Pythons, or other systems
        yield found
        wanted += [each for each, extra in _requires(found) if extra is None]


def _requires(found: Distribution) -> Iterator[tuple[str, str | None]]:
    """Return the normalised name of each requirement, and the extra that asks for it."""
    for line in found.requires or ():
        name, extra = _NAME.match(line), _EXTRA.search(line)
        if name is not None:
            yield re.sub(r"[-_.]+", "-", name[0]).lower(), extra[1] if extra else None


def _installed(name: str) -> Distribution:
    try:
        return distribution(name)
    except PackageNotFoundError as error:
        message = f"{name} is not installed, so it cannot be packed"
        raise MissingDependencyError(
            message, hint=f"pip install {name}", library=name, extra=""
        ) from error


def _files_of(found: Distribution) -> Iterator[tuple[str, Path]]:
    files = found.files
    if files is None:
        name = found.metadata["Name"]
        message = f"{name} does not list its files, so it cannot be packed"
        hint = f"pip install --force-reinstall {name}"
        raise MissingDependencyError(message, hint=hint, library=name, extra="")
    for file in files:
        # Programs lie outside; a .pth of this environment means nothing in another.
        if ".." in file.parts or file.suffix in {".pyc", ".pth"}:
            continue
        located = Path(str(file.locate()))
        if located.is_file():
            yield file.as_posix(), located
