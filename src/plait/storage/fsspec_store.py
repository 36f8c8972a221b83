"""Any other URL that fsspec knows.

``mode="create"`` of fsspec's base class looks whether the name is free and then writes: two
callers can both win. Only adapters that are known to make one conditional request of it are
written to, and only after the probe saw nothing against them. Others can be read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow.fs as pafs

from plait.errors import OptionError, StorageError
from plait.model.store_address import StoreAddress
from plait.storage.arrow import LocalFiles
from plait.storage.disk import Disk
from plait.storage.location import ATOMIC_CREATE, COHERENT, adapter_missing, declared_of, options_of
from plait.storage.objects import ObjectStore, Traits
from plait.storage.tree import require_plain

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

    from plait.ports import Clock, Ids

_OBJECTS = Traits(writes_are_whole=True, has_directories=False, coherent=True)
_ATOMIC = replace(_OBJECTS, create_is_atomic=True)
KNOWN: Mapping[str, Traits] = {
    # gcsfs sends ifGenerationMatch=0, for small and for resumable uploads
    "gs": _ATOMIC,
    "gcs": _ATOMIC,
    "abfs": _OBJECTS,
    "abfss": _OBJECTS,
    "az": _OBJECTS,
    "oss": _OBJECTS,
    "oci": _OBJECTS,
}
"""What is known of an adapter's ``pipe_file``; of any other nothing is."""
_DISKS = ("file", "local")
_SAID_MAX = 300


class FsspecStore(ObjectStore):
    """A table behind an fsspec adapter. The storage options are those of the adapter.

    A user can declare ``atomic-create`` of it. The probe is made all the same.
    """

    foreign = (Exception,)  # adapters raise what their libraries do; there is no common base

    def __init__(
        self,
        address: StoreAddress,
        *,
        fresh: bool = False,
        makes_root: bool = True,
        clock: Clock | None = None,
        ids: Ids | None = None,
    ) -> None:
        files, root = _open(address.uri, options_of(address), fresh=fresh)
        protocol = address.uri.split("://", 1)[0]
        self.traits = KNOWN.get(protocol, Traits())
        if ATOMIC_CREATE in declared_of(address):
            self.traits = replace(self.traits, create_is_atomic=True, writes_are_whole=True)
        if COHERENT in declared_of(address):
            self.traits = replace(self.traits, coherent=True)
        super().__init__(address, files, root, makes_root=makes_root, clock=clock, ids=ids)
        self._on_disk = protocol in _DISKS

    def _at(self, path: str) -> str:
        full = super()._at(path)
        if self._on_disk:  # the adapter would follow a link
            require_plain(self._root, path)
        return full

    def filesystem(self) -> pafs.FileSystem:
        """Return an Arrow file system rooted at the table."""
        if self._on_disk:
            return pafs.PyFileSystem(
                LocalFiles(Disk(self._root, self._ids, makes_root=self.makes_root), self._root)
            )
        return super().filesystem()

    def reopen(self) -> FsspecStore:
        """Open the same place anew, sharing no cache and no connection."""
        return FsspecStore(self._address, fresh=True)


def _open(
    uri: str, options: Mapping[str, object], *, fresh: bool
) -> tuple[AbstractFileSystem, str]:
    if "::" in uri:
        message = f"{uri!r} chains file systems, and a cache between them can show stale data"
        raise OptionError(message, hint="use the plain URL", key="uri", value=uri)
    from fsspec import available_protocols  # noqa: PLC0415 - tables on local disks do without
    from fsspec.core import url_to_fs  # noqa: PLC0415 - the same

    try:
        files, root = url_to_fs(uri, **options, use_listings_cache=False, skip_instance_cache=fresh)
    except ImportError as error:
        raise adapter_missing(uri, error) from error
    except OSError as error:
        # The library tells every place where it looked, in thousands of characters.
        message = f"{uri!r} cannot be opened: {str(error).strip()[:_SAID_MAX]}"
        hint = "hdfs:// needs Hadoop's native client: set JAVA_HOME, HADOOP_HOME and CLASSPATH"
        raise StorageError(message, hint=hint, path=uri) from error
    except (TypeError, ValueError, KeyError) as error:
        if uri.partition("://")[0] not in available_protocols():
            raise adapter_missing(uri, error) from error
        message = f"fsspec cannot open {uri!r}: {error}"
        hint = "check the adapter's options"
        raise OptionError(message, hint=hint, key="uri", value=uri) from error
    except Exception as error:
        message = f"{uri!r} cannot be opened: {type(error).__name__}: {error}"
        hint = "check that the server can be reached, and the adapter's options"
        raise StorageError(message, hint=hint, path=uri) from error
    return files, str(root)
