"""Which keeper an address means: `file:///folder`, or `s3://bucket/prefix?endpoint=…&region=…`."""

import asyncio
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from agentflow.artifacts.folder import Folder
from agentflow.artifacts.keeper import Keeper
from agentflow.artifacts.store import KeptArtifacts
from agentflow.encryption.keyring import KeyRing
from agentflow.errors import Rejected


class S3NotInstalled(Rejected):
    code = "AF1605"

    def __init__(self) -> None:
        super().__init__(
            "Artifacts in a bucket need boto3, which is not installed.", hint="pip install 'agentflow[s3]'"
        )


async def open_artifacts(url: str, ring: KeyRing | None = None) -> KeptArtifacts:
    """Ready to use, or one sentence why not: a folder that cannot be written or a bucket that does not answer."""
    return KeptArtifacts(await asyncio.to_thread(open_keeper, url), ring)


def open_keeper(url: str) -> Keeper:
    parts = urlsplit(url)
    if parts.scheme == "file":
        return Folder(Path(unquote(parts.path)))
    try:
        from agentflow.artifacts.s3 import Bucket
    except ImportError:
        raise S3NotInstalled from None
    options = parse_qs(parts.query)
    return Bucket(
        parts.netloc,
        prefix=unquote(parts.path),
        endpoint=options.get("endpoint", [None])[0],
        region=options.get("region", [None])[0],
    )
