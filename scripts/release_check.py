"""Check that this checkout can be released: build it, install it elsewhere, and use it.

Builds the wheel and the sdist, installs each in an environment that holds nothing else, and runs
the first example of the README and the first tutorial there. ``make release-check`` is this.
With ``--tag`` the version must be that of the tag and not called unreleased; ``--out`` keeps what
was built and used, so that nothing else is published.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parent.parent
INIT = "src/plait/__init__.py"
CHANGELOG = "CHANGELOG.md"
PROJECT = "pyproject.toml"
NOT_SHIPPED = frozenset({"tests", "scripts", "benchmarks", "examples", "scheduler", "conftest"})
"""Folders and modules that belong to the repository, and not to the package."""
IMPORT = """
import sys
import plait
assert plait.__version__ == {version!r}, f"this is plait {{plait.__version__}}"
assert not {{"pyspark", "py4j"}} & set(sys.modules), "import plait brings Spark"
for name in plait.__all__:
    getattr(plait, name)
assert not {{"pyspark", "py4j"}} & set(sys.modules), "a public name brings Spark"
"""


def main() -> int:
    """Run every step; return 0 only if all of them hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tag", default="", help="the tag of the release, such as v0.1.0")
    parser.add_argument("--out", type=Path, help="a new directory for the packages")
    asked = parser.parse_args()
    texts = [(ROOT / name).read_text(encoding="utf-8") for name in (PROJECT, INIT, CHANGELOG)]
    versions = declared_versions(*texts)
    problems = version_problems(versions)
    if asked.tag:
        problems += tag_problems(asked.tag, versions[PROJECT], texts[-1])
    if not problems:
        with tempfile.TemporaryDirectory(prefix="plait-release-") as place:
            problems = package_problems(Path(place), versions[PROJECT])
            if not problems and asked.out:
                asked.out.mkdir()
                for package in packages(Path(place)):
                    shutil.copy2(package, asked.out)
    for problem in problems:
        print(f"release-check: {problem}", file=sys.stderr)
    print(f"release-check: {'FAILED' if problems else f'{versions[PROJECT]} can be released'}")
    return 1 if problems else 0


def declared_versions(project: str, init: str, changelog: str) -> Mapping[str, str]:
    """Return the version that each file declares; an empty text where it declares none."""
    in_init = re.search(r'^__version__ = "([^"]+)"$', init, re.MULTILINE)
    heading = re.search(r"^## (\d\S*)", changelog, re.MULTILINE)
    return {
        PROJECT: str(tomllib.loads(project)["project"].get("version", "")),
        INIT: in_init[1] if in_init else "",
        CHANGELOG: heading[1] if heading else "",
    }


def version_problems(versions: Mapping[str, str]) -> list[str]:
    """Return what is wrong with the declared versions."""
    if len(set(versions.values())) == 1 and all(versions.values()):
        return []
    told = ", ".join(f"{name} has {version or 'none'}" for name, version in versions.items())
    return [f"the versions differ: {told}; make them equal"]


def tag_problems(tag: str, version: str, changelog: str) -> list[str]:
    """Return why a tag cannot be released; a version goes into the changelog with its date."""
    problems = []
    if tag != f"v{version}":
        problems.append(f"the tag is {tag}, but the version is {version}")
    if re.search(rf"^## {re.escape(version)} \(unreleased\)", changelog, re.MULTILINE):
        problems.append(f"{CHANGELOG} calls {version} unreleased; give it its date")
    return problems


def misplaced(names: Iterable[str]) -> list[str]:
    """Return the files of a wheel that belong to the repository alone."""
    return sorted(
        name
        for name in names
        if any(
            part.removesuffix(".py") in NOT_SHIPPED or part.startswith("test_")
            for part in PurePosixPath(name).parts
        )
    )


def package_problems(place: Path, version: str) -> list[str]:
    """Build both packages, look into them, and use each in an environment of its own."""
    try:
        step("build the wheel and the sdist")
        run(sys.executable, "-m", "hatchling", "build", "-d", str(place), cwd=ROOT)
        wheel, sdist = packages(place)
        with zipfile.ZipFile(wheel) as archive:
            inside = ", ".join(misplaced(archive.namelist()))
        problems = [f"{wheel.name} holds {inside}; move them out of src"] if inside else []
        with tarfile.open(sdist) as source:
            names = {PurePosixPath(*PurePosixPath(n).parts[1:]) for n in source.getnames()}
        wanted = (PROJECT, CHANGELOG, "README.md", "LICENSE", INIT)
        missing = [name for name in wanted if PurePosixPath(name) not in names]
        problems += [f"{sdist.name} lacks {name}; see tool.hatch in {PROJECT}" for name in missing]
        for package in (wheel, sdist):
            use(package, place / package.suffix[1:], version)
    except subprocess.CalledProcessError as error:
        return [f"this failed: {' '.join(error.cmd[:4])} ...\n{error.stdout}"]
    return problems


def packages(place: Path) -> tuple[Path, Path]:
    """Return the wheel and the sdist that were built."""
    (wheel,), (sdist,) = place.glob("*.whl"), place.glob("*.tar.gz")
    return wheel, sdist


def use(package: Path, place: Path, version: str) -> None:
    """Install a package without extras in a bare environment, import it, run its examples."""
    step(f"install {package.name} without extras")
    venv.create(place / "env", with_pip=True)
    python, work = str(place / "env" / "bin" / "python"), place / "work"
    work.mkdir()
    options = ("--quiet", "--disable-pip-version-check", "--no-input")
    pinned = ("--constraint", str(ROOT / "constraints.txt"))
    run(python, "-m", "pip", "install", *options, *pinned, str(package), cwd=work)
    step("import it, run the README's first example and the first tutorial")
    run(python, "-c", IMPORT.format(version=version), cwd=work)
    run(python, "-c", examples("README.md")[0], cwd=work)
    run(str(place / "env" / "bin" / "tablectl"), "verify", "flights", cwd=work)
    (work / "tutorial").mkdir()
    tutorial = "\n".join(examples("docs/tutorials/first-table.md"))
    run(python, "-c", tutorial, cwd=work / "tutorial")


def examples(page: str) -> list[str]:
    """Return the Python blocks of a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def step(text: str) -> None:
    """Tell the person what is done now."""
    print(f"-- {text}", flush=True)


def run(*command: str, cwd: Path) -> None:
    """Run a command, quietly unless it fails; nothing of this checkout is on its path."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    subprocess.run(
        command,
        cwd=cwd,
        env=environment,
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


if __name__ == "__main__":
    sys.exit(main())
