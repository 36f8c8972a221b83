"""Network mounts: which of them hide what others have written."""

from __future__ import annotations

from pathlib import Path

import pytest

from plait.storage.mounts import find_mount, parse_mount


def line(kind: str, options: str = "rw", point: str = "/data") -> str:
    return f"40 27 0:31 / {point} rw,relatime shared:7 - {kind} server:/x {options}"


@pytest.mark.parametrize(
    ("kind", "options", "coherent"),
    [
        ("ext4", "rw", True),
        ("overlay", "rw,lowerdir=/a", True),
        ("ceph", "rw", True),
        ("fuse.fuse-overlayfs", "rw", True),
        ("nfs4", "rw,vers=4.2,acregmin=3,acdirmax=60", False),
        ("nfs4", "rw,noac", False),
        ("nfs4", "rw,lookupcache=none", False),
        ("nfs4", "rw,noac,lookupcache=none", True),
        ("nfs", "rw,acdirmin=0,acdirmax=0,lookupcache=pos", True),
        ("cifs", "rw,noac,lookupcache=none", False),
        ("9p", "rw", False),
        ("fuse.sshfs", "rw", False),
        ("fuse.gcsfuse", "rw", False),
    ],
)
def test_a_mount_is_coherent_only_if_it_keeps_no_lookups(
    kind: str, options: str, coherent: bool
) -> None:
    mount = parse_mount(line(kind, options))
    assert mount is not None
    assert mount.coherent is coherent


def test_the_deepest_and_last_mount_holds_a_path(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    rows = [
        line("ext4", point="/"),
        line("nfs4", point=str(tmp_path)),
        line("xfs", point=f"{tmp_path}/a\\040b"),
        line("tmpfs", point=str(tmp_path)),
        "garbage",
        line("cifs", point=f"{tmp_path}/a"),
    ]
    table.write_text("\n".join(rows))
    kinds = {name: find_mount(f"{tmp_path}/{name}", str(table)) for name in ("x", "a b/t", "ab")}
    assert {name: mount and mount.kind for name, mount in kinds.items()} == {
        "x": "tmpfs",
        "a b/t": "xfs",
        "ab": "tmpfs",
    }


def test_without_a_mount_table_nothing_is_known(tmp_path: Path) -> None:
    assert find_mount("/", str(tmp_path / "none")) is None
    assert parse_mount("") is None
