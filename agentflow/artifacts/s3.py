"""Bytes in a bucket of Amazon S3 or of anything that speaks its API. The one door to boto3.

Who we are comes from where boto3 always looks (environment, profile, the machine's role); an upload of many parts
becomes visible at once, when it is whole.
"""

import tempfile
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, NoReturn, cast

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from agentflow.artifacts.keeper import Kept
from agentflow.ports import ArtifactsUnavailable

_CONNECT_S = 5
_ANSWER_S = 60
_ATTEMPTS = 4
_IN_MEMORY_BYTES = 8 * 1024 * 1024  # a larger object is spooled on the local disk on its way
_GONE = ("404", "NoSuchKey", "NotFound")


class Bucket:
    def __init__(
        self, bucket: str, *, prefix: str = "", endpoint: str | None = None, region: str | None = None
    ) -> None:
        self._bucket = bucket
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        config = Config(
            connect_timeout=_CONNECT_S,
            read_timeout=_ANSWER_S,
            retries={"max_attempts": _ATTEMPTS, "mode": "standard"},
            s3={"addressing_style": "path"} if endpoint else {},
        )
        try:
            self._client: Any = boto3.client("s3", endpoint_url=endpoint, region_name=region, config=config)
            self._client.head_bucket(Bucket=bucket)
        except (BotoCoreError, ClientError, ValueError) as error:
            self._away(error)
        # One thread per transfer: the callers already are many.
        self._transfer = TransferConfig(use_threads=False)

    def spool(self) -> BinaryIO:
        return tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES)  # type: ignore[return-value]

    def keep(self, spool: BinaryIO, name: str) -> None:
        spool.seek(0)
        try:
            self._client.upload_fileobj(spool, self._bucket, self._prefix + name, Config=self._transfer)
        except (BotoCoreError, ClientError, boto3.exceptions.S3UploadFailedError) as error:
            self._away(error)

    def read(self, name: str) -> BinaryIO:
        try:
            answer = self._client.get_object(Bucket=self._bucket, Key=self._prefix + name)
        except ClientError as error:
            if error.response["Error"]["Code"] in _GONE:
                raise FileNotFoundError(name) from None
            self._away(error)
        except BotoCoreError as error:
            self._away(error)
        return _Answered(answer["Body"], self._away)  # type: ignore[return-value]

    def has(self, name: str) -> bool:
        try:
            self._client.head_object(Bucket=self._bucket, Key=self._prefix + name)
        except ClientError as error:
            if error.response["Error"]["Code"] in _GONE:
                return False
            self._away(error)
        except BotoCoreError as error:
            self._away(error)
        return True

    def names(self, prefix: str = "") -> Iterator[Kept]:
        under = self._prefix + (f"{prefix}/" if prefix else "")
        try:
            for page in self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=under):
                for item in page.get("Contents", ()):
                    at_ms = int(item["LastModified"].timestamp() * 1000)
                    yield Kept(item["Key"].removeprefix(self._prefix), item["Size"], at_ms)
        except (BotoCoreError, ClientError) as error:
            self._away(error)

    def remove(self, name: str) -> None:
        try:
            self._client.delete_object(Bucket=self._bucket, Key=self._prefix + name)
        except (BotoCoreError, ClientError) as error:
            self._away(error)

    def _away(self, error: Exception) -> NoReturn:
        raise ArtifactsUnavailable(f"bucket {self._bucket}: {error}") from error


class _Answered:
    """A body on its way: a connection cut half way is told like any other absence."""

    def __init__(self, body: Any, away: Callable[[Exception], NoReturn]) -> None:
        self._body = body
        self._away = away

    def read(self, size: int = -1) -> bytes:
        try:
            return cast(bytes, self._body.read(None if size < 0 else size))
        except (BotoCoreError, OSError) as error:
            self._away(error)

    def close(self) -> None:
        self._body.close()
