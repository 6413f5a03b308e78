"""Where the Docker daemon is and what runs there. Apart from `docker`, so that saying it does not import its client."""

import msgspec

_IDLE_MAX = 8


class DockerOptions(msgspec.Struct, frozen=True):
    host: str = "unix:///var/run/docker.sock"
    image: str = ""  # what functions and commands run in; it needs a python3
    runtime: str | None = None
    idle_max: int = _IDLE_MAX
