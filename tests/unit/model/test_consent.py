"""What a caller allows: equal addresses, and what lies below a place (RFC 0037)."""

from __future__ import annotations

import ast
import shlex
from collections import defaultdict
from pathlib import Path

import pytest

import plait
from plait import ConsentError, OptionError
from plait.model.consent import ENVIRONMENT, Consent

SOURCE = Path(plait.__file__).parent
GIVEN = {
    "replicate/address.py": "an address on the command line or in a call of this process",
}
"""The files that may take a text for the caller's own, and whose words it is there."""
SINKS = {"replicate/address.py": "the one function that makes a sink of an allowed address"}


def callers() -> dict[str, set[str]]:
    """Return the files that call a function or a class, by its name."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                found[node.func.id].add(path.relative_to(SOURCE).as_posix())
    return found


def test_only_the_module_of_consent_makes_an_allowed_address_and_a_sink_is_made_of_such() -> None:
    called = callers()
    assert called["AllowedAddress"] == {"model/consent.py"}
    assert called["given"] == set(GIVEN)
    assert called["SqlSink"] | called["TableSink"] | called["TopicSink"] == set(SINKS)


@pytest.mark.parametrize(
    ("allow", "address"),
    [
        ("s3://bucket/x", "s3://bucket/x"),
        ("s3://bucket/*", "s3://bucket/x/y"),
        ("S3://bucket/*", "s3://bucket/x"),
        ("/srv/sinks/*", "/srv/sinks/eu"),
        ("/srv/sinks/*", "file:///srv/sinks/eu"),
        ("file:///srv/sinks/*", "/srv/sinks/eu"),
        ("delta:/srv/old", "/srv/old"),
        ("/srv/old/*.parquet", "/srv/old/*.parquet"),
        ("sqlite:////srv/*", "sqlite:////srv/x.db#t"),
        ("zookeeper://h1:2181/plait", "zookeeper://h1:2181/plait?session=5s&slots=lent"),
        ("zookeeper://h1:2181/*", "zookeeper://h1:2181/plait?slots=lent"),
        ("'/with a blank/x' /other", "/with a blank/x"),
    ],
)
def test_what_the_caller_named_is_allowed(allow: str, address: str) -> None:
    assert Consent.of(allow).allows(address)


@pytest.mark.parametrize(
    ("allow", "address"),
    [
        ("", "/srv"),
        ("/srv/sinks", "/srv/sinks/eu"),
        ("/srv/sinks/*", "/srv/sinks"),
        ("/srv/sinks/*", "/srv/sinks-other"),
        ("/srv/sinks/*", "/srv/sinks/../etc"),
        ("/srv/sinks/*", "/srv/sinks/%2e%2e/etc"),
        ("/srv/sinks/*", "/srv/sinks/%252e%252e/etc"),
        ("/srv/sinks/*", "file://server/srv/sinks/eu"),
        ("kafka://one:9092/*", "kafka://one:9092,two:9092/topic"),
        ("postgresql://host/*", "postgresql://host/db?host=other#t"),
        ("http://host/*", "http://host/@other/"),
        ("sqlite:////srv/*", "sqlite:////srv/x.db?uri=true#t"),
        ("s3://bucket/*", "s3://bucket-other/x"),
    ],
)
def test_nothing_else_is(allow: str, address: str) -> None:
    consent = Consent.of(allow or None)
    assert not consent.allows(address)
    with pytest.raises(ConsentError) as caught:
        consent.require(address, "sink", "/tables/t")
    error = caught.value
    assert (error.kind, error.named_by) == ("sink", "/tables/t")


@pytest.mark.parametrize("allow", ["*", "/*", "s3://*", "s3:///*", "", " "])
def test_a_text_that_names_no_place_is_refused(allow: str) -> None:
    with pytest.raises(OptionError):
        Consent.of([allow])


@pytest.mark.parametrize(
    "address", ["s3://bucket/x", "/a b/c'd", "sqlite:////srv/x.db#t", 'kafka://h/"', "a\\b"]
)
def test_what_the_error_shows_can_be_typed(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In Python, on the command line and in the environment."""
    with pytest.raises(ConsentError) as caught:
        Consent().require(address, "sink", "/t")
    hint = caught.value.hint
    _, _, rest = hint.partition("allow=[")
    listed, _, rest = rest.partition("] where")
    assert Consent.of([ast.literal_eval(listed)]).allows(address)
    _, _, rest = rest.partition("--allow ")
    typed, _, rest = rest.partition(f", or {ENVIRONMENT}=")
    assert shlex.split(typed) == [address]
    (value,) = shlex.split(rest.removesuffix(" in the environment"))
    monkeypatch.setenv(ENVIRONMENT, value)
    assert Consent.of().allows(address)


def test_a_relative_path_is_one_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Consent.of("./x").allows(str(tmp_path / "x"))
    assert Consent.of("sqlite:///x.db#t").allows(f"sqlite:///{tmp_path}/x.db#t")
