"""S3 and stores that speak its language: ``s3://bucket/prefix``, through s3fs (extra ``s3``).

``put_if_absent`` is one PUT with ``If-None-Match: *``. Amazon's servers are known to honour it;
of any other endpoint the probe makes sure first, because a server that does not know the header
overwrites without a word.
"""

from __future__ import annotations

import asyncio
import email.utils
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from plait.errors import MissingDependencyError, OptionError, StorageError
from plait.model.store_address import StoreAddress
from plait.storage.location import options_of
from plait.storage.objects import ATTEMPTS_MAX, ObjectStore, Traits
from plait.storage.port import FileInfo, check_path, no_clock
from plait.storage.probe import ProbeSubject

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

    from plait.ports import Clock, Ids

SCHEMES = ("s3://", "s3a://", "s3n://")
_BOTOCORE_MIN = (1, 35, 20)
_BUCKET = re.compile(r"[A-Za-z0-9._-]{1,255}|arn:aws[^/@\s]*")
"""What servers may take; an ``@`` stands behind somebody's password."""
_REFUSALS = (TypeError, KeyError, ValueError, AttributeError)
"""What s3fs and its libraries raise for options that they do not take."""
_DELETE_MAX = 1_000
_SAID_MAX = 300
_ONE_BY_ONE_MAX = 4
_AMAZON = (".amazonaws.com", ".amazonaws.com.cn")
REACH_S = 5.0
"""How long the first answer of a bucket may take."""
_REMEDIES = {
    "NoSuchBucket": "create the bucket, or correct its name in the URL",
    "InvalidBucketName": "correct the name of the bucket in the URL",
    "InvalidAccessKeyId": "the server does not know the access key: check key or the profile",
    "SignatureDoesNotMatch": "the secret does not belong to the access key: check secret",
    "ExpiredToken": "the session token has expired: get new credentials",
    "InvalidToken": "the session token is invalid: check token, or the profile",
    "AuthorizationHeaderMalformed": "name the bucket's region: client_kwargs={'region_name': ...}",
    "PermanentRedirect": "name the bucket's region: client_kwargs={'region_name': ...}",
    "IllegalLocationConstraintException": "name the region: client_kwargs={'region_name': ...}",
}
"""What to do about a refusal that no other request would be spared."""
_reached: set[tuple[str, str]] = set()
"""Endpoints and buckets that have answered this process."""


class S3Store(ObjectStore):
    """A table below a prefix of a bucket; its options are those of ``s3fs.S3FileSystem``."""

    traits = Traits(
        create_is_atomic=True, swap_is_atomic=True, writes_are_whole=True, has_directories=False
    )

    def __init__(
        self,
        address: StoreAddress,
        *,
        fresh: bool = False,
        clock: Clock | None = None,
        ids: Ids | None = None,
    ) -> None:
        bucket, prefix = _split(address.uri)
        self._bucket, self._prefix = bucket, prefix
        self._connected: AbstractFileSystem
        files, self.foreign = _connect(options_of(address), fresh=fresh)
        uri = f"s3://{bucket}/{prefix}".rstrip("/")
        root = f"{bucket}/{prefix}".rstrip("/")
        super().__init__(StoreAddress(uri, address.options), files, root, clock=clock, ids=ids)

    @property
    def _files(self) -> AbstractFileSystem:
        """The file system; the first time in a process, the bucket is asked for one answer.

        Without that, a wrong endpoint or a missing bucket is found out by each request anew, and
        each is sent again for minutes.
        """
        self._reach()
        return self._connected

    @_files.setter
    def _files(self, files: AbstractFileSystem) -> None:
        self._connected = files

    def _reach(self) -> None:
        """Ask for one name; raise StorageError if no answer comes soon, or a hopeless one."""
        files = self._connected
        endpoint = str(files.s3.meta.endpoint_url)
        if (endpoint, self._bucket) in _reached:
            return
        import fsspec.asyn  # noqa: PLC0415 - tables on local disks do without

        async def ask() -> None:
            prefix = self._key(".meta/")
            call = files._call_s3(  # noqa: SLF001 - the public one cannot be given up
                "list_objects_v2", Bucket=self._bucket, Prefix=prefix, MaxKeys=1
            )
            await asyncio.wait_for(call, REACH_S)

        try:
            fsspec.asyn.sync(files.loop, ask)
        except TimeoutError as error:
            why = f"did not answer within {REACH_S:g} s"
            hint = "check endpoint_url, the network, proxies, and where credentials come from"
            raise _unreachable(endpoint, self._bucket, why, hint) from error
        except self.foreign as error:
            code, said = _code_of(error), str(error)[:_SAID_MAX]
            # Of any other refusal, such as AccessDenied for a listing, the request itself tells.
            if not code or code in _REMEDIES:
                hint = _REMEDIES.get(code, "check endpoint_url, the credentials and the network")
                why = f"refuses: {code}: {said}" if code else f"cannot be reached: {said}"
                raise _unreachable(endpoint, self._bucket, why, hint) from error
        _reached.add((endpoint, self._bucket))

    def _server_is_known(self) -> bool:
        with self._translated("reach", self._bucket):
            endpoint = str(self._files.s3.meta.endpoint_url)
        return (urlsplit(endpoint).hostname or "").endswith(_AMAZON)

    def probe_subject(self) -> ProbeSubject:
        """Return this store as the probe takes it: its server is told by the endpoint."""
        place = f"{self._files.s3.meta.endpoint_url}/{self._bucket}"
        return replace(super().probe_subject(), place=place)

    def reopen(self) -> S3Store:
        """Open the same place anew, sharing no cache and no connection."""
        return S3Store(self._address, fresh=True)

    def _key(self, path: str) -> str:
        return f"{self._prefix}/{path}".lstrip("/")

    def list(self, prefix: str) -> Iterator[FileInfo]:
        """List page by page, as the server sorts: by path."""
        top = prefix.rstrip("/")
        start = self._key(f"{check_path(top)}/") if top else self._key("")
        skip = len(self._key(""))
        more: dict[str, object] = {}
        while True:
            with self._translated("list", prefix):
                page = self._files.call_s3(
                    "list_objects_v2", Bucket=self._bucket, Prefix=start, **more
                )
            for entry in page.get("Contents", ()):
                path = entry["Key"][skip:]
                if path and not path.endswith("/"):
                    modified_ms = int(entry["LastModified"].timestamp() * 1000)
                    yield FileInfo(path, int(entry["Size"]), modified_ms)
            if not page.get("IsTruncated"):
                return
            more = {"ContinuationToken": page["NextContinuationToken"]}

    def replace(self, path: str, body: bytes, *, expected: bytes) -> bool:
        """Write a whole object in place of exactly ``expected``: one PUT with ``If-Match``.

        A failure is never believed: what is there is read, before each attempt.
        """
        key = self._key(check_path(path))
        there: bytes | None = None
        cause: Exception | None = None
        backoff = self._backoff()
        for attempt in range(ATTEMPTS_MAX):
            try:
                there, tag = self._load_tagged(key, max(len(body), len(expected)))
                if there != expected or attempt == ATTEMPTS_MAX - 1:
                    break
                if attempt > 1:  # the first failure is most often another writer's success
                    backoff.pause()
                self._files.call_s3(
                    "put_object", Bucket=self._bucket, Key=key, Body=body, IfMatch=tag
                )
            except FileNotFoundError:
                return False
            except self.foreign as error:
                self._raise_if_final(path, error)
                there, cause = None, error
            else:
                return True
        if there not in (None, expected):
            return there == body
        message = f"the store did not say whether {path} was replaced: {cause}"
        raise StorageError(message, hint="read it before you write again", path=path) from cause

    def _load_tagged(self, key: str, size_max: int) -> tuple[bytes, str]:
        """Read an object, a byte more than that at most, and its ETag with one request."""
        import fsspec.asyn  # noqa: PLC0415 - tables on local disks do without

        async def read() -> tuple[bytes, str]:
            reply = await self._files._call_s3("get_object", Bucket=self._bucket, Key=key)  # noqa: SLF001 - its only call that gives bytes and ETag at once
            body = b""
            try:  # one read gives what has arrived so far
                while part := await reply["Body"].read(size_max + 1 - len(body)):
                    body += part
            finally:
                reply["Body"].close()
            return body, str(reply["ETag"])

        found: tuple[bytes, str] = fsspec.asyn.sync(self._files.loop, read)
        return found

    def delete(self, paths: Iterable[str]) -> None:
        """Delete objects, up to 1,000 with one request; one that is not there is no error."""
        keys = iter([self._key(check_path(path)) for path in paths])
        while batch := list(itertools.islice(keys, _DELETE_MAX)):
            with self._translated("delete", f"{len(batch)} files, first {batch[0]}"):
                if len(batch) <= _ONE_BY_ONE_MAX:
                    for key in batch:
                        self._files.call_s3("delete_object", Bucket=self._bucket, Key=key)
                    continue
                order = {"Objects": [{"Key": key} for key in batch], "Quiet": True}
                reply = self._files.call_s3("delete_objects", Bucket=self._bucket, Delete=order)
            if failures := reply.get("Errors"):
                first = failures[0]
                message = f"cannot delete {len(failures)} files: {first['Code']} of {first['Key']}"
                raise StorageError(message, path=first["Key"])

    def _ask_server(self) -> int:
        """Read the Date of a small reply; whole seconds. Raise ClockUnavailableError."""
        try:
            with self._translated("ask the time of", self._bucket):
                reply = self._files.call_s3(
                    "list_objects_v2", Bucket=self._bucket, Prefix=self._key(".meta/"), MaxKeys=1
                )
            stamp = reply["ResponseMetadata"]["HTTPHeaders"]["date"]
            return int(email.utils.parsedate_to_datetime(stamp).timestamp() * 1000)
        except StorageError as error:
            raise no_clock(self._address.uri, error.message) from error
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise no_clock(self._address.uri, "its reply has no Date") from error


def _code_of(error: BaseException) -> str:
    """Return the server's code for an error; "" if no server said anything."""
    cause: BaseException | None = error
    while cause is not None:
        response = getattr(cause, "response", None)
        if isinstance(response, dict):
            return str(response.get("Error", {}).get("Code", ""))
        cause = cause.__cause__ or cause.__context__
    return ""


def _unreachable(endpoint: str, bucket: str, why: str, hint: str) -> StorageError:
    message = f"bucket {bucket!r} at {endpoint} {why}"
    return StorageError(message, hint=hint, path=bucket, endpoint=endpoint, bucket=bucket)


def _split(uri: str) -> tuple[str, str]:
    scheme = next((scheme for scheme in SCHEMES if uri.startswith(scheme)), "")
    bucket, _, prefix = uri.removeprefix(scheme).partition("/")
    prefix = prefix.rstrip("/")
    if not scheme or not bucket or not prefix or "" in prefix.split("/"):
        message = f"{uri!r} does not name a directory in a bucket"
        raise OptionError(message, hint="for example s3://bucket/table", key="uri", value=uri)
    if not _BUCKET.fullmatch(bucket):
        hint = "s3://bucket/table; credentials go into storage_options as key and secret"
        raise OptionError(f"{uri!r} has an invalid bucket name", hint=hint, key="uri", value=uri)
    return bucket, prefix


def _connect(
    options: Mapping[str, object], *, fresh: bool
) -> tuple[AbstractFileSystem, tuple[type[Exception], ...]]:
    try:
        import aiohttp  # noqa: PLC0415 - comes with s3fs
        import botocore  # type: ignore[import-untyped]  # noqa: PLC0415 - comes with s3fs
        import botocore.exceptions  # type: ignore[import-untyped]  # noqa: PLC0415 - the same
        import s3fs  # noqa: PLC0415 - the extra's only place, and only when it is used
    except ImportError as error:
        message = "tables in S3 need s3fs"
        hint = "pip install 'plait[s3]'"
        raise MissingDependencyError(message, hint=hint, library="s3fs", extra="s3") from error
    version = tuple(int(part) for part in botocore.__version__.split(".")[:3])
    if version < _BOTOCORE_MIN:  # older ones drop the condition silently
        message = f"botocore {botocore.__version__} does not support conditional writes"
        hint = "pip install --upgrade 'plait[s3]'"
        raise MissingDependencyError(message, hint=hint, library="botocore", extra="s3")
    foreign = (OSError, aiohttp.ClientError, botocore.exceptions.BotoCoreError)
    own = {**options, "use_listings_cache": False, "skip_instance_cache": fresh}
    try:
        files = s3fs.S3FileSystem(**own)
        files.connect()  # asks nobody, and looks at options that it would else meet much later
    except (*_REFUSALS, botocore.exceptions.BotoCoreError) as error:
        message = f"s3fs refuses the storage options: {error}"
        raise OptionError(
            message, hint="see the options of s3fs.S3FileSystem", key="storage_options"
        ) from error
    return files, foreign
