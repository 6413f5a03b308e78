"""What the text of a setting may be: one check for each kind of value, which refuses in a sentence with a hint.

Used by `agentflow.settings` alone. Pure but for a file of keys, which is read where it is named. No value is ever
repeated in a refusal: it may hold a password, also when it is malformed.
"""

import ipaddress
import re
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import parse_qs, urlsplit

from pydantic_core import PydanticCustomError

from agentflow.encryption.keyring import InvalidKeys, parse_keys


def refuse(message: str, hint: str = "") -> NoReturn:
    raise PydanticCustomError("refused", "{message}", {"message": message, "hint": hint})


def address(text: str) -> str:
    _, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        refuse("must be host:port, with a port from 0 to 65535", "For example 127.0.0.1:8080; port 0 takes a free one.")
    return text


def is_loopback(address: str) -> bool:
    bare = address.rpartition(":")[0].removeprefix("[").removesuffix("]")
    try:
        return bare == "localhost" or ipaddress.ip_address(bare).is_loopback
    except ValueError:
        return False


def database(dsn: str) -> str:
    # The value itself is never repeated in a message: it may hold a password, also when it is malformed.
    shapes = "Write sqlite:///path/to/file.db or postgres://user:password@host:5432/database."
    scheme, separator, rest = dsn.partition("://")
    if not separator or scheme not in ("sqlite", "postgres", "postgresql"):
        refuse("must be a sqlite or postgres address", shapes)
    if scheme == "sqlite":
        if rest in ("", "/", "/:memory:"):
            refuse("must name a file: a database in memory would forget every execution", shapes)
        return dsn
    if not host_of(dsn):
        refuse("must name the database server's host", shapes)
    return f"postgres://{rest}"


def nats(url: str) -> str:
    if not url.startswith(("nats://", "tls://")) or not host_of(url):
        refuse("must be a nats address", "For example nats://127.0.0.1:4222, or tls://nats.internal:4222 under TLS.")
    return url


def http(url: str) -> str:
    if not url.startswith(("http://", "https://")) or not host_of(url):
        refuse("must be an http or https address", "For example http://127.0.0.1:8080.")
    return url.rstrip("/")


def issuer(url: str) -> str:
    parts = urlsplit(url)
    here = parts.hostname in ("localhost", "127.0.0.1", "::1")
    if not host_of(url) or parts.query or parts.fragment or not (parts.scheme == "https" or here):
        refuse("must be the https address of an OpenID Connect issuer", "For example https://login.example.com.")
    return url  # to the letter: tokens name it exactly so


def redis(url: str) -> str:
    if not url.startswith(("redis://", "rediss://")) or not host_of(url):
        refuse("must be a redis address", "For example redis://127.0.0.1:6379.")
    return url


_RATE = re.compile(r"(\d+(?:\.\d+)?)(?:/([smh]))?", re.ASCII)


def rate(text: str) -> str:
    if _RATE.fullmatch(text.strip()) is None:
        refuse("must be a number of requests per s, m or h", "For example 50/s or 1000/m; 0 for no limit.")
    return text.strip()


def per_second(text: str) -> float:
    """`50/s`, `1000/m`: as `api_rate_limit_sustained` is written, in requests a second."""
    match = _RATE.fullmatch(text)
    if match is None:
        return 0.0
    return float(match[1]) / {"s": 1, "m": 60, "h": 3600}[match[2] or "s"]


_SANDBOXES = ("process", "docker", "gvisor", "wasm")


def sandbox(name: str) -> str:
    if name not in _SANDBOXES:
        refuse("is not a sandbox we know", f"Use one of {', '.join(_SANDBOXES)}; see docs/guides/sandboxes.md.")
    return name


def artifacts(url: str) -> str:
    shapes = "Write file:///path/to/folder or s3://bucket/prefix (?endpoint=https://… for a server of your own)."
    parts = urlsplit(url)
    if parts.scheme not in ("file", "s3"):
        refuse("must be a file or s3 address", shapes)
    if parts.username is not None or parts.password is not None:
        refuse("must hold no credentials: boto3 finds them where it always does", shapes)
    if parts.scheme == "file":
        if parts.netloc or parts.path in ("", "/") or parts.query:
            refuse("must name a folder of this machine, as file:///folder", shapes)
        return url
    options = parse_qs(parts.query, keep_blank_values=True)
    endpoint = options.pop("endpoint", ["http://any"])[0]
    options.pop("region", None)
    if not parts.netloc or options or ".." in parts.path.split("/"):
        refuse("must name a bucket, and nothing but endpoint and region after `?`", shapes)
    if not endpoint.startswith(("http://", "https://")) or not host_of(endpoint):
        refuse("must have an http or https address as its endpoint", shapes)
    return url


def keys(text: str) -> str:
    try:
        parse_keys(text)
    except InvalidKeys as error:
        refuse(f"cannot be used: {error.reason}", error.hint)
    return text


def keys_file(path: Path) -> Path:
    try:
        parse_keys(path.read_text(encoding="utf-8"))
    except InvalidKeys as error:
        refuse(f"cannot be used: {error.reason}", error.hint)
    except (OSError, UnicodeDecodeError) as error:
        refuse("cannot be read" + (f": {error.strerror}" if isinstance(error, OSError) else ""), "Check the path.")
    return path


_TENANT = re.compile(r"[a-z0-9][a-z0-9-]{0,62}|\*", re.ASCII)
_AGENT = re.compile(r"[A-Za-z0-9_-]{1,64}|\*", re.ASCII)


def worker_tenant(tenant: str) -> str:
    if not _TENANT.fullmatch(tenant):
        refuse("must be a tenant's id, or `*`", "For example acme; `af tenants list` shows them.")
    return tenant


def tenant_names(names: str) -> str:
    for name in filter(None, names.split(",")):
        worker_tenant(name.strip())
    return names


def agent_names(names: str) -> str:
    for name in filter(None, names.split(",")):
        if not _AGENT.fullmatch(name.strip()):
            refuse(f"`{name}` is not an agent's name", "For example classifier,tools; or `*` for all.")
    return names


def always_on(text: str) -> str:
    if text != "on":
        refuse("cannot be anything but `on`", "Callers always prove who they are; `af dev` sees to it by itself.")
    return text


def networks(ranges: str) -> str:
    for text in filter(None, ranges.split(",")):
        try:
            ipaddress.ip_network(text.strip())
        except ValueError:
            refuse(f"`{text}` is not a range of addresses", "For example 10.0.0.0/8,192.168.0.0/16.")
    return ranges


def host_of(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises when it is no port
    except ValueError:
        return None
    return parts.hostname


def lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


def home_path(path: Path) -> Path:
    return path.expanduser()
