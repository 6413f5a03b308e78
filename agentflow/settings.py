"""The one reader of the environment: defaults, then a file, then `AF_*` variables, checked as a whole.

Called by the composition roots and the CLI, which hand plain values on; nothing else may import it. Every
fault is reported at once, by the name of the variable or the place in the file, and never with a password.
"""

import os
import re
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import quote

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from agentflow import setting_values as values
from agentflow.contracts.pools import ANY, SHARED
from agentflow.encryption.keyring import KeyRing, parse_keys
from agentflow.errors import Invalid, Problem
from agentflow.ids import DEFAULT_TENANT
from agentflow.limits import (
    ACK_WAIT_S,
    DISPATCH_WINDOW,
    DRAIN_S,
    LEASE_S,
    OPEN_EXECUTIONS_MAX,
    PROBLEMS_SHOWN_MAX,
    RESEND_AFTER_S,
    SIGNING_KEY_DAYS,
    SPOOL_MB,
    STATE_SNAPSHOT_EVENTS,
    TOKEN_TTL_S,
    TOKEN_TTL_S_MAX,
    WORKER_LOST_AFTER_S,
)
from agentflow.tls import TlsFiles, client_context
from agentflow.workflow.document import read
from agentflow.workflow.source_map import Document
from agentflow.workflow.suggest import did_you_mean

_PREFIX = "AF_"
_FILE_VARIABLE = "AF_CONFIG_FILE"
_FILE_DEFAULT = Path("agentflow.yaml")
_SECRET = frozenset({"encryption_keys", "token", "api_key"})
_OF_THE_CALLER = frozenset({"token", "api_key"})  # for `af` and programs; no service needs them
_NO_ENCRYPTION = "Set AF_TLS_CERT_FILE and AF_TLS_KEY_FILE, or use 127.0.0.1: with no TLS, keys travel in the clear."


class InvalidSettings(Invalid):
    code = "AF1501"

    def __init__(self, problems: Sequence[Problem]) -> None:
        count = "One setting is" if len(problems) == 1 else f"{len(problems)} settings are"
        super().__init__(
            f"{count} not usable.",
            hint="Correct what is listed; docs/errors/AF1501.md lists every setting.",
            problems=problems[:PROBLEMS_SHOWN_MAX],
        )


def _default_dsn(given: dict[str, Any]) -> str:
    return f"sqlite:///{given['home'] / 'agentflow.db'}"


def _default_artifacts(given: dict[str, Any]) -> str:
    return f"file://{quote(str((given['home'] / 'artifacts').absolute()))}"


def _default_worker_tenant(given: dict[str, Any]) -> str:
    """Where all agents are shared, so is every worker that says nothing else."""
    return ANY if given["shared_agents"].strip() == ANY else DEFAULT_TENANT


def _default_reflection(given: dict[str, Any]) -> bool:
    return bool(given["mode"] == "dev")


def _default_spool(given: dict[str, Any]) -> Path:
    return Path(given["home"]) / "spool"


def _default_api_url(given: dict[str, Any]) -> str:
    listen: str = given["http_listen"]
    if listen.endswith(":0"):
        return "http://127.0.0.1:8080"
    return f"http://{listen}" if values.is_loopback(listen) else f"http://127.0.0.1:{listen.rpartition(':')[2]}"


Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Settings(BaseModel):
    """Everything a deployment may choose. The variable of a field is its name in capitals after `AF_`."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, hide_input_in_errors=True, validate_default=True
    )

    home: Annotated[Path, AfterValidator(values.home_path)] = Path(".agentflow")
    """Directory for what a machine keeps: the SQLite file, the bus's storage, logs."""

    db_dsn: Annotated[str, AfterValidator(values.database)] = Field(default_factory=_default_dsn)
    """The database: sqlite:///file or postgres://user:password@host:port/database."""

    artifacts_url: Annotated[str, AfterValidator(values.artifacts)] = Field(default_factory=_default_artifacts)
    """Where large values are kept: file:///folder or s3://bucket/prefix, the same for control plane and workers."""

    encryption_keys: Annotated[str, AfterValidator(values.keys)] | None = None
    """Keys for what is stored encrypted, as id:base64 with commas between; the first one encrypts."""

    encryption_keys_file: Annotated[Path, AfterValidator(values.keys_file)] | None = None
    """A file with these keys, one on each line, instead of `encryption_keys`."""

    db_migrate_dsn: Annotated[str, AfterValidator(values.database)] | None = None
    """The same PostgreSQL database for a user who owns the tables, where the one of `db_dsn` does not."""

    retention: str = ""
    """How long things are kept where the defaults do not fit: history=30d,acme/history=7d,cost=never."""

    retention_export_url: Annotated[str, AfterValidator(values.artifacts)] | None = None
    """Where rows are written before they are removed: file:///folder or s3://bucket/prefix; nowhere by default."""

    snapshot_ended: Annotated[str, AfterValidator(values.tenant_names)] = ""
    """Tenants, by commas, of whose executions a snapshot is taken once they are over; `*` for all, none by default."""

    nats_url: Annotated[str, AfterValidator(values.nats)] = "nats://127.0.0.1:4222"
    """The NATS server with JetStream: nats://host:port, or tls://host:port, which speaks TLS or not at all."""

    nats_replicas: Annotated[int, Field(ge=1, le=5)] = 1
    """Copies JetStream keeps of each stream: 1 for a single server, 3 in a cluster."""

    mode: Annotated[Literal["dev", "prod"], BeforeValidator(values.lower)] = "prod"
    """What the deployment is for, as `af status` tells: `dev` where `af dev` runs it."""

    auth: Annotated[str, BeforeValidator(values.lower), AfterValidator(values.always_on)] = "on"
    """Whether callers must prove who they are: always `on`. Here so that nobody believes to have turned it off."""

    http_listen: Annotated[str, AfterValidator(values.address)] = "127.0.0.1:8080"
    """Where the control plane serves REST; port 0 takes a free one."""

    grpc_listen: Annotated[str, AfterValidator(values.address)] = "127.0.0.1:8081"
    """Where the control plane serves gRPC; port 0 takes a free one."""

    grpc_reflection: bool = Field(default_factory=_default_reflection)
    """Whether gRPC tells who has a credential which services there are: by default only where `mode` is `dev`."""

    api_url: Annotated[str, AfterValidator(values.http)] = Field(default_factory=_default_api_url)
    """Where `af` finds the control plane; by default, where `http_listen` says."""

    token: str | None = None
    """For `af`: the token to send. Comes before `api_key` and before what `af auth login` stored."""

    api_key: str | None = None
    """For `af` and the SDK: the API key to send."""

    credentials_file: Annotated[Path, AfterValidator(values.home_path)] = Path("~/.config/agentflow/credentials.json")
    """Where `af auth login` keeps what it got."""

    bootstrap_file: Path | None = None
    """Where the first administrator's key is written, readable by its owner only; without it, it is shown once."""

    token_issuer: Annotated[str, Field(min_length=1, max_length=256)] = "agentflow"  # noqa: S105 - no secret
    """The `iss` of tokens: the same for all control planes of a deployment, another for each deployment."""

    token_audience: Annotated[str, Field(min_length=1, max_length=256)] = "agentflow"  # noqa: S105 - no secret
    """The `aud` of tokens."""

    token_ttl_s: Annotated[int, Field(ge=60, le=TOKEN_TTL_S_MAX)] = TOKEN_TTL_S
    """How long a token is valid unless its asker wants otherwise."""

    signing_key_days: Annotated[float, Field(gt=0, le=3650)] = SIGNING_KEY_DAYS
    """After this many days tokens are signed with a new key."""

    redis_url: Annotated[str, AfterValidator(values.redis)] | None = None
    """A Redis in which control planes count requests together; without it each counts for itself."""

    api_rate_limit_burst: Annotated[int, Field(ge=1)] = 10_000
    """Requests a tenant may send at once."""

    api_rate_limit_sustained: Annotated[str, AfterValidator(values.rate)] = "5000/s"
    """Requests a tenant may send over time: a number per s, m or h; 0 for no limit."""

    api_rate_limit_user_burst: Annotated[int, Field(ge=1)] = 10_000
    """Requests one user of a tenant may send at once."""

    api_rate_limit_user_sustained: Annotated[str, AfterValidator(values.rate)] = "5000/s"
    """Requests one user of a tenant may send over time; 0 for no limit."""

    oidc_issuer: Annotated[str, AfterValidator(values.issuer)] | None = None
    """An OpenID Connect issuer whose ID tokens log people in; exactly as it names itself."""

    oidc_audience: str = "agentflow"
    """The client id at that issuer that ID tokens must be made for."""

    tls_ca_file: Path | None = None
    """The authority (PEM) to trust in NATS, PostgreSQL and the API; by default those that the machine trusts."""

    db_tls: bool = False
    """Speak TLS with PostgreSQL and verify its certificate; else as `sslmode` in the address says."""

    tls_cert_file: Path | None = None
    """The certificate we serve REST and gRPC with, and show to servers that ask; `tls_key_file` has its key."""

    tls_key_file: Path | None = None
    """The key of `tls_cert_file`."""

    tls_client_ca_file: Path | None = None
    """Only callers with a certificate of this authority may connect (mTLS)."""

    listen_insecure: bool = False
    """Serve beyond this machine without TLS, because something in front of it ends TLS."""

    shards: Annotated[int, Field(ge=1, le=1024)] = 16
    """Parts the executions are divided into. Fixed for the life of a deployment."""

    workflow_env: str = ""
    """Names of variables, by commas, that expressions may read as `env.NAME`; recorded when an execution starts."""

    lease_s: Seconds = LEASE_S
    """A control plane that has been silent for this long may be replaced."""

    snapshot_every: Annotated[int, Field(ge=10)] = STATE_SNAPSHOT_EVENTS
    """Events of an execution after which its state is stored beside them."""

    sandbox: Annotated[str, BeforeValidator(values.lower), AfterValidator(values.sandbox)] = "process"
    """What fences a tool that asks for nothing stronger: process, docker, gvisor or wasm."""

    sandbox_image: str = ""
    """The image, by digest, that functions and commands run in under `docker`. It needs a python3."""

    docker_host: str = "unix:///var/run/docker.sock"
    """The Docker daemon that runs tools."""

    egress_private: Annotated[str, AfterValidator(values.networks)] = ""
    """Internal networks that tools may reach by a granted name, separated by commas; by default none."""

    secrets_dir: Path | None = None
    """A folder with one file per secret, which the egress proxy puts into requests of tools that may use it."""

    agents_file: Path | None = None
    """The file that names the agents a worker hosts."""

    log_level: Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(values.lower)] = "info"
    """The least that is logged."""

    log_format: Annotated[Literal["console", "json"], BeforeValidator(values.lower)] = "console"
    """`console` for people, `json` for machines (one object a line)."""

    ack_wait_s: Seconds = ACK_WAIT_S
    """After this much silence a step is given to another worker."""

    resend_after_s: Seconds = RESEND_AFTER_S
    """A step with no outcome and an idle mailbox is sent again after this."""

    open_executions_max: Annotated[int, Field(ge=1)] = OPEN_EXECUTIONS_MAX
    """How many executions a control plane keeps in memory; idle ones beyond it are read again when they move."""

    dispatch_window: Annotated[int, Field(ge=1)] = DISPATCH_WINDOW
    """How many steps of one tenant an agent is given at once; at least twice its concurrency over all workers."""

    tenant_executions_max: Annotated[int, Field(ge=0)] = 0
    """How many executions a tenant may have under way at once; others queue. 0: as many as it likes."""

    drain_s: Seconds = DRAIN_S
    """How long a stopping worker lets running steps finish."""

    worker_health_listen: Annotated[str, AfterValidator(values.address)] = "127.0.0.1:0"
    """Where a worker serves /livez and /readyz; port 0 takes a free one, which its log names."""

    worker_lost_s: Seconds = WORKER_LOST_AFTER_S
    """A worker that is silent for this long is counted as lost, and its steps are given to others."""

    shared_agents: Annotated[str, AfterValidator(values.agent_names)] = ""
    """Agents, by commas, whose steps go to the shared workers whatever the tenant; `*` for all. The same everywhere."""

    worker_tenant: Annotated[str, AfterValidator(values.worker_tenant)] = Field(default_factory=_default_worker_tenant)
    """The tenant whose steps a worker takes, and whose agents it hosts; `*` for a worker that tenants share."""

    spool_dir: Path = Field(default_factory=_default_spool)
    """Where a worker keeps results while the bus is away; by default `spool` in `home`."""

    spool_mb: Annotated[int, Field(ge=1, le=1024 * 1024)] = SPOOL_MB
    """The most that the spool may hold."""

    def __repr_args__(self) -> list[tuple[str | None, Any]]:
        return [(name, "***" if name in _SECRET and value else without_password(value)) for name, value in self]

    def serves_beyond(self) -> bool:
        """Whether REST is reached under other names than this machine's own."""
        return not values.is_loopback(self.http_listen)

    def bus_is_local(self) -> bool:
        return values.is_loopback(self.nats_url.rpartition("/")[2].rpartition("@")[2])

    def tls_files(self) -> TlsFiles:
        return TlsFiles(self.tls_ca_file, self.tls_cert_file, self.tls_key_file)

    def nats_tls(self) -> ssl.SSLContext | None:
        return client_context(self.tls_files()) if self.nats_url.startswith("tls://") else None

    def database_tls(self) -> ssl.SSLContext | None:
        return client_context(self.tls_files()) if self.db_tls else None

    def shared_agent_names(self) -> frozenset[str]:
        return frozenset(filter(None, (name.strip() for name in self.shared_agents.split(","))))

    def snapshot_tenants(self) -> frozenset[str]:
        return frozenset(filter(None, (name.strip() for name in self.snapshot_ended.split(","))))

    def worker_pool(self) -> str:
        return SHARED if self.worker_tenant == ANY else self.worker_tenant

    def key_ring(self) -> KeyRing | None:
        """The keys, from wherever they are given; None where nothing is to be encrypted."""
        if self.encryption_keys_file is not None:
            return parse_keys(self.encryption_keys_file.read_text(encoding="utf-8"))
        return None if self.encryption_keys is None else parse_keys(self.encryption_keys)


def without_password(value: Any) -> Any:
    """The same value, fit to be shown: `postgres://af:secret@db/af` becomes `postgres://af:***@db/af`."""
    if not isinstance(value, str):
        return value
    shown = re.sub(r"(?<=://)([^:/@]*):.*@", r"\1:***@", value)
    shown = re.sub(r"((?:nats|tls)://)[^:/@]+@", r"\1***@", shown)  # NATS takes a bare token where others have the user
    return re.sub(r"(?<=[?&]password=)[^&]*", "***", shown)


def load_settings(*, environ: Mapping[str, str] | None = None, file: Path | None = None) -> Settings:
    """Read every source and check the whole. Raises `InvalidSettings` with all faults.

    The file is `file`, else what AF_CONFIG_FILE names, else `agentflow.yaml` here if there is one.
    """
    variables = os.environ if environ is None else environ
    gathered = _Gathered()
    gathered.add_file(file, variables.get(_FILE_VARIABLE, ""))
    gathered.add_variables(variables)
    return gathered.checked()


def pool_of_worker(environ: Mapping[str, str]) -> str:
    """The pool of a worker that is started with these variables."""
    told = {name: environ[name] for name in ("AF_SHARED_AGENTS", "AF_WORKER_TENANT") if name in environ}
    return load_settings(environ={**told, _FILE_VARIABLE: os.devnull}).worker_pool()


def inherited_environment() -> dict[str, str]:
    """What a child process starts from: this environment without our own variables, so none leaks by accident."""
    return {name: value for name, value in os.environ.items() if not name.startswith(_PREFIX)}


def allowed_environment(settings: Settings, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """What workflows may see of this environment: only what `workflow_env` names, and only what is set."""
    variables = os.environ if environ is None else environ
    names = [name.strip() for name in settings.workflow_env.split(",")]
    return {name: variables[name] for name in names if name in variables}


def choose(variable: str, value: str) -> None:
    """What an option of the command line says, for this process and those it starts."""
    os.environ[variable] = value


def environment_with(changes: Mapping[str, str]) -> dict[str, str]:
    """This environment with some variables set anew, for a process that takes our place."""
    return {**os.environ, **changes}


def as_environment(settings: Settings) -> dict[str, str]:
    """The variables that give a child exactly what was chosen here, whatever file lies where it starts."""
    names = sorted(settings.model_fields_set - _OF_THE_CALLER)
    chosen = {_PREFIX + name.upper(): str(getattr(settings, name)) for name in names}
    return {**chosen, _FILE_VARIABLE: os.devnull}


class _Gathered:
    """Values under their fields' names, where each came from, and what was wrong so far."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._places: dict[str, str] = {}
        self._problems: list[Problem] = []

    def add_file(self, file: Path | None, named: str) -> None:
        path = file or (Path(named) if named else _FILE_DEFAULT)
        if file is None and not named and not path.is_file():
            return
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            hint = f"Check {_FILE_VARIABLE}." if named and file is None else "Check the path and its permissions."
            self._problems.append(Problem(f"cannot be read: {reason}", hint, path=str(path)))
            return
        if not re.sub(r"#.*", "", text).strip():
            return  # nothing in it, or only comments: nothing is chosen
        document, problems = read(text)
        self._problems += [
            Problem(problem.message, problem.hint, path=f"{path}:{problem.line}:{problem.column}")
            for problem in problems
        ]
        if document is not None:
            self._add_document(path, document)

    def _add_document(self, path: Path, document: Document) -> None:
        if not isinstance(document.data, dict):
            self._problems.append(Problem("must hold settings as `name: value`", path=f"{path}:1:1"))
            return
        for key, value in document.data.items():
            line, column = document.key_position((key,))
            place = f"{path}:{line}:{column}: {key}"
            if key in Settings.model_fields:
                self._values[key], self._places[key] = value, place
            else:
                self._unknown(place, key, list(Settings.model_fields))

    def add_variables(self, variables: Mapping[str, str]) -> None:
        known = {_PREFIX + field.upper(): field for field in Settings.model_fields}
        for name in sorted(variables):
            # An empty variable is how compose files and shells spell "not set".
            if not name.startswith(_PREFIX) or name == _FILE_VARIABLE or not variables[name]:
                continue
            if name in known:
                self._values[known[name]], self._places[known[name]] = variables[name], name
            else:
                self._unknown(name, name, [*known, _FILE_VARIABLE])

    def _unknown(self, place: str, given: str, known: list[str]) -> None:
        self._problems.append(Problem("is not a setting", did_you_mean(given, known, kind="settings"), path=place))

    def checked(self) -> Settings:
        settings = None
        try:
            settings = Settings.model_validate(self._values)
        except ValidationError as error:
            self._problems += [
                self._explained(detail)
                for detail in error.errors(include_url=False, include_input=False)
                if detail["type"] != "default_factory_not_called"  # its cause is in the list already
            ]
        if settings is not None:
            self._check_listening(settings)
        if settings is None or self._problems:
            raise InvalidSettings(self._problems)
        return settings

    def _check_listening(self, settings: Settings) -> None:
        """Credentials cross a network only under TLS, unless somebody says that something else sees to it."""
        if (settings.tls_cert_file is None) != (settings.tls_key_file is None):
            self._problems.append(Problem("is one half of a pair", "Set both or neither.", path="AF_TLS_CERT_FILE"))
        if settings.db_tls and settings.db_dsn.startswith("sqlite"):
            self._problems.append(Problem("is for PostgreSQL", "A SQLite file has no line to it.", path="AF_DB_TLS"))
        if settings.tls_cert_file is not None or settings.listen_insecure:
            return
        for field in ("http_listen", "grpc_listen"):
            if not values.is_loopback(getattr(settings, field)):
                place = self._places.get(field, _PREFIX + field.upper())
                self._problems.append(Problem("must be an address of this machine only", _NO_ENCRYPTION, path=place))

    def _explained(self, detail: ErrorDetails) -> Problem:
        field = str(detail["loc"][0])
        context = detail.get("ctx", {})
        if detail["type"] == "refused":
            return Problem(context["message"], context["hint"], path=self._places[field])
        message = detail["msg"].replace("Input should be", "must be", 1)
        return Problem(message, Settings.model_fields[field].description or "", path=self._places[field])
