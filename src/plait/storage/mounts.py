"""What kind of file system a local path lies on: some only look local."""

# Every call is counted in microseconds here, so no pathlib.
# ruff: noqa: PTH123

from __future__ import annotations

import os
import re
from dataclasses import dataclass

_TABLE = "/proc/self/mountinfo"
_BEFORE_KIND = 6
_ESCAPED = re.compile(r"\\([0-7]{3})")  # the kernel writes a space as \040
_CACHING = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ncpfs")
_CACHING_FUSE = (
    "blobfuse", "blobfuse2", "davfs", "gcsfuse", "goofys", "juicefs", "mountpoint-s3",
    "rclone", "s3fs", "sshfs",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of the mount table."""

    point: str
    kind: str
    options: tuple[str, ...]

    @property
    def remote(self) -> bool:
        """Whether another machine stamps the times of its files."""
        name = self.kind.removeprefix("fuse.")
        return self.kind in _CACHING or (name != self.kind and name in _CACHING_FUSE)

    @property
    def coherent(self) -> bool:
        """Whether each host sees what every other host has finished writing.

        Network mounts keep look-ups and listings for seconds, so a slot that is taken may look
        free and a record that is there may be missing from a listing. Of NFS, a mount with
        ``noac`` (or ``actimeo=0``) and ``lookupcache=none`` or ``positive`` does not.
        """
        if not self.remote:
            return True
        if not self.kind.startswith("nfs"):
            return False
        fresh = "noac" in self.options or {"acdirmin=0", "acdirmax=0"} <= set(self.options)
        lookups = {"lookupcache=none", "lookupcache=pos", "lookupcache=positive"}
        return fresh and not lookups.isdisjoint(self.options)


def find_mount(path: str, table: str = _TABLE) -> Mount | None:
    """Find the mount that a path lies on; None where the system does not tell."""
    try:
        with open(table, encoding="utf-8", errors="surrogateescape") as lines:
            mounts = [mount for line in lines if (mount := parse_mount(line)) is not None]
    except OSError:
        return None
    real = os.path.realpath(path)
    best: Mount | None = None
    for mount in mounts:
        inside = real == mount.point or real.startswith(mount.point.rstrip("/") + "/")
        if inside and (best is None or len(mount.point) >= len(best.point)):
            best = mount
    return best


def parse_mount(line: str) -> Mount | None:
    """Read one line of ``/proc/self/mountinfo``.

    >>> parse_mount("40 27 0:31 / /data rw - nfs4 host:/x rw,vers=4.2,lookupcache=none").kind
    'nfs4'
    """
    words = line.split()
    if "-" not in words[_BEFORE_KIND:]:
        return None
    dash = words.index("-", _BEFORE_KIND)
    point = _ESCAPED.sub(lambda match: chr(int(match[1], 8)), words[4])
    options = (words[dash + 3 : dash + 4] or [""])[0]
    return Mount(point, words[dash + 1], (*words[5].split(","), *options.split(",")))
