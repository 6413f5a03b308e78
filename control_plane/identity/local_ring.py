"""Keys of this machine's own, for what identity seals where a deployment has configured no encryption keys."""

import secrets
from pathlib import Path

from agentflow.durable_files import make_private
from agentflow.encryption.keyring import KEY_BYTES, KeyRing, parse_keys, written_key


def local_ring(file: Path) -> KeyRing:
    """What the file holds; made, for its owner's eyes only, where it is not there. Several may ask at once."""
    if not file.exists():
        # On the disk before anything is sealed with it: what a lost key has sealed is lost too.
        make_private(file, f"{written_key('local', secrets.token_bytes(KEY_BYTES))}\n".encode())
    return parse_keys(file.read_text())
