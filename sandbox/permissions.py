"""The language of permissions: `network.http:api.example.com`, `fs.read:/data`, `fs.tmp`, `db.read`, `k8s.*`. Pure.

A permission is `family.action:scope`; each part is a name or `*`, and the scope of `network` is a domain (also
`*.example.com`), of `fs` a path and everything below it. In every part two patterns are nested or apart, never
halfway across each other, so the meeting of two permissions is one permission or nothing: `meet` is exact.
`policy` builds grants from it. It knows nothing of tools, roles or tenants.
"""

import posixpath
import re

import msgspec

ANY = "*"
_ACTIONS = {
    "network": ("http", "smtp", "dns"),
    "fs": ("read", "write", "tmp", "workspace"),
    "db": ("read", "write"),
    "k8s": (),  # whatever a cluster calls its verbs
    "wasi": ("stdio", "clock", "random"),
    "secret": ("use",),
}
_NAME = re.compile(r"[a-z0-9_-]+")
_SCOPED = {("network", "http"), ("network", "smtp"), ("network", "dns"), ("fs", "read"), ("fs", "write")}
_PLACES = {("fs", "tmp"): "the call's own temporary folder", ("fs", "workspace"): "the execution's own folder"}
_DOMAIN = re.compile(
    r"(\*\.)?([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(:[1-9]\d{0,4})?"
)
_ADDRESS = re.compile(r"[\d.]+(:\d+)?|.*\[.*")


class Permission(msgspec.Struct, frozen=True, order=True):
    family: str
    action: str
    scope: str = ANY

    def __str__(self) -> str:
        if self.family == ANY:
            return ANY
        scope = "" if self.scope == ANY and (self.family, self.action) not in _SCOPED else f":{self.scope}"
        return f"{self.family}.{self.action}{scope}"


EVERYTHING = Permission(ANY, ANY)


class MalformedPermission(ValueError):
    """The sentence says what is wrong with the text; `policy` gives it its code and its place."""


def parse(text: str, *, folder: str = "/") -> Permission:
    """`folder` is where relative paths start."""
    if text == ANY:
        return EVERYTHING
    head, colon, scope = text.partition(":")
    family, _, action = head.partition(".")
    if family not in _ACTIONS or not (action == ANY or _NAME.fullmatch(action)):
        raise MalformedPermission(f"`{text}` is no permission: write family.action, of {', '.join(_ACTIONS)}")
    known = _ACTIONS[family]
    if known and action != ANY and action not in known:
        raise MalformedPermission(f"`{text}`: {family} has {', '.join(known)} and *")
    if colon and not scope:
        raise MalformedPermission(f"`{text}` ends in a colon: name what it is for")
    if not colon and (family, action) in _SCOPED:
        raise MalformedPermission(f"`{text}` must say for what: `{head}:…`, or `{head}:*` for all of it")
    if colon and (family, action) in _PLACES:
        raise MalformedPermission(f"`{head}` has no scope: it is {_PLACES[family, action]}")
    if not colon or scope == ANY:
        return Permission(family, action)
    match family:
        case "network":
            return Permission(family, action, _domain(scope))
        case "fs":
            path = posixpath.normpath(posixpath.join(folder, scope))
            return Permission(family, action, ANY if path == "/" else path)
        case _:
            return Permission(family, action, scope)


def _domain(text: str) -> str:
    domain = text.lower()
    if _ADDRESS.fullmatch(domain):
        raise MalformedPermission(f"`{text}` is an address: only names can be granted, and the proxy resolves them")
    if not _DOMAIN.fullmatch(domain):
        raise MalformedPermission(f"`{text}` is no domain: write api.example.com, *.example.com or *")
    return domain


def meet(one: Permission, other: Permission) -> Permission | None:
    """What both allow, as one permission; None when that is nothing."""
    family = _narrower(one.family, other.family)
    action = _narrower(one.action, other.action)
    if family is None or action is None:
        return None
    if EVERYTHING in (one, other):
        return other if one == EVERYTHING else one
    scope = _scope(family, one.scope, other.scope)
    if scope is None or ((family, action) in _PLACES and scope != ANY):
        return None
    return Permission(family, action, scope)


def covers(wide: Permission, narrow: Permission) -> bool:
    return meet(wide, narrow) == narrow


def _narrower(one: str, other: str) -> str | None:
    if one in (ANY, other):
        return other
    return one if other == ANY else None


def _scope(family: str, one: str, other: str) -> str | None:
    if ANY in (one, other):
        return _narrower(one, other)
    match family:
        case "network":
            return _domains(one, other)
        case "fs":
            if one == other or one.startswith(f"{other}/"):
                return one
            return other if other.startswith(f"{one}/") else None
        case _:
            return _narrower(one, other)


def _domains(one: str, other: str) -> str | None:
    """Names meet by suffix, ports by being equal or left out on one side."""
    name_one, _, port_one = one.partition(":")
    name_other, _, port_other = other.partition(":")
    if port_one and port_other and port_one != port_other:
        return None
    if name_one == name_other or _below(name_one, name_other):
        name = name_one
    elif _below(name_other, name_one):
        name = name_other
    else:
        return None
    port = port_one or port_other
    return f"{name}:{port}" if port else name


def _below(name: str, pattern: str) -> bool:
    return pattern.startswith("*.") and name.endswith(pattern[1:]) and name != pattern
