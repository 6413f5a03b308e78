"""Keys of this machine's own, for what identity seals where a deployment has configured no encryption keys."""

import os
import secrets
from contextlib import suppress
from pathlib import Path

from agentflow.encryption.keyring import KEY_BYTES, KeyRing, parse_keys, written_key


def local_ring(file: Path) -> KeyRing:
    """What the file holds; made, for its owner's eyes only, where it is not there. Several may ask at once."""
    file.parent.mkdir(parents=True, exist_ok=True)
    if not file.exists():
        beside = file.with_name(f"{file.name}.{secrets.token_hex(4)}")
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w") as writing:
            writing.write(written_key("local", secrets.token_bytes(KEY_BYTES)) + "\n")
        with suppress(FileExistsError):
            os.link(beside, file)  # whoever was first
        beside.unlink()
    return parse_keys(file.read_text())
