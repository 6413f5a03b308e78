"""What makes stored bytes unreadable without a key: the key ring, single fields, and streams of any length.

AES-256-GCM through `cryptography`, and nothing else of that library. Bytes in, bytes out: must not enter databases,
files, settings or logs, and no key may ever be part of a message or a repr.
"""
