from pathlib import Path

import pytest

from agentflow.encryption.keyring import written_key
from agentflow.errors import Problem
from agentflow.settings import (
    InvalidSettings,
    Settings,
    allowed_environment,
    as_environment,
    environment_with,
    inherited_environment,
    load_settings,
    without_password,
)


@pytest.fixture(autouse=True)
def _empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def problems_of(environ: dict[str, str], file: Path | None = None) -> dict[str, Problem]:
    with pytest.raises(InvalidSettings) as caught:
        load_settings(environ=environ, file=file)
    return {problem.path: problem for problem in caught.value.problems}


def test_without_any_source_the_defaults_hold() -> None:
    settings = load_settings(environ={})

    assert settings == Settings()
    assert settings.db_dsn == "sqlite:///.agentflow/agentflow.db"
    assert settings.api_url == "http://127.0.0.1:8080"


def test_the_environment_wins_over_the_file_and_the_file_over_the_defaults() -> None:
    Path("agentflow.yaml").write_text("shards: 4\nnats_replicas: 3\n")

    settings = load_settings(environ={"AF_SHARDS": "8"})

    assert (settings.shards, settings.nats_replicas, settings.ack_wait_s) == (8, 3, 30.0)


def test_af_config_file_names_the_file_to_read(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.yaml"
    elsewhere.write_text("log_level: debug\n")

    assert load_settings(environ={"AF_CONFIG_FILE": str(elsewhere)}).log_level == "debug"


def test_a_named_file_that_is_not_there_is_a_fault_and_not_silence() -> None:
    found = problems_of({"AF_CONFIG_FILE": "gone.yaml"})

    assert "cannot be read" in found["gone.yaml"].message
    assert "AF_CONFIG_FILE" in found["gone.yaml"].hint


def test_a_file_with_only_comments_chooses_nothing() -> None:
    Path("agentflow.yaml").write_text("# shards: 4\n\n")

    assert load_settings(environ={}) == Settings()


def test_the_database_and_the_api_address_follow_home_and_listen() -> None:
    settings = load_settings(environ={"AF_HOME": "/srv/af", "AF_HTTP_LISTEN": "localhost:9000"})

    assert settings.db_dsn == "sqlite:////srv/af/agentflow.db"
    assert settings.api_url == "http://localhost:9000"


def test_every_fault_is_told_at_once_under_the_name_of_its_variable() -> None:
    found = problems_of({"AF_SHARDS": "many", "AF_ACK_WAIT_S": "-1", "AF_LOG_LEVEL": "loud", "AF_NATS_URL": "http://x"})

    assert set(found) == {"AF_SHARDS", "AF_ACK_WAIT_S", "AF_LOG_LEVEL", "AF_NATS_URL"}
    assert "integer" in found["AF_SHARDS"].message
    assert found["AF_ACK_WAIT_S"].message == "must be greater than 0"
    assert "'debug', 'info', 'warning' or 'error'" in found["AF_LOG_LEVEL"].message


def test_a_fault_in_the_file_is_told_with_its_line_and_column() -> None:
    Path("agentflow.yaml").write_text("log_format: json\nshards: 0\n")

    found = problems_of({})

    assert list(found) == ["agentflow.yaml:2:1: shards"]


def test_yaml_that_does_not_parse_is_told_with_its_place() -> None:
    Path("agentflow.yaml").write_text("shards: [1\n")

    found = problems_of({})

    assert all(place.startswith("agentflow.yaml:") for place in found)


def test_an_unknown_variable_is_refused_with_the_one_that_was_probably_meant() -> None:
    assert problems_of({"AF_SHARD": "4"})["AF_SHARD"].hint == "Did you mean `AF_SHARDS`?"


def test_an_unknown_key_in_the_file_is_refused_with_the_one_that_was_probably_meant() -> None:
    Path("agentflow.yaml").write_text("nats_ulr: nats://127.0.0.1:4222\n")

    assert problems_of({})["agentflow.yaml:1:1: nats_ulr"].hint == "Did you mean `nats_url`?"


def test_variables_of_others_and_empty_ones_are_left_alone() -> None:
    assert load_settings(environ={"PATH": "/bin", "AF_SHARDS": "", "AFX": "1"}) == Settings()


@pytest.mark.parametrize("address", ["0.0.0.0:8080", ":8080", "192.168.1.4:80", "example.com:80", "[::]:80"])
def test_listening_beyond_this_machine_is_refused_because_nobody_is_asked_who_they_are(address: str) -> None:
    found = problems_of({"AF_HTTP_LISTEN": address, "AF_GRPC_LISTEN": address})

    assert set(found) == {"AF_HTTP_LISTEN", "AF_GRPC_LISTEN"}
    assert "no TLS" in found["AF_HTTP_LISTEN"].hint


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.1:", "127.0.0.1:http", "127.0.0.1:70000", "127.0.0.1:²"])
def test_an_address_without_a_usable_port_is_refused(address: str) -> None:
    assert "host:port" in problems_of({"AF_HTTP_LISTEN": address})["AF_HTTP_LISTEN"].message


@pytest.mark.parametrize("address", ["127.0.0.1:0", "127.9.9.9:80", "localhost:8080", "[::1]:8080"])
def test_addresses_of_this_machine_are_taken(address: str) -> None:
    assert load_settings(environ={"AF_HTTP_LISTEN": address}).http_listen == address


@pytest.mark.parametrize(
    "dsn", ["mysql://root@h/d", "sqlite://", "sqlite:///:memory:", "postgres://", "postgres://h:port/d", "af.db"]
)
def test_a_database_address_that_cannot_keep_state_is_refused(dsn: str) -> None:
    assert set(problems_of({"AF_DB_DSN": dsn})) == {"AF_DB_DSN"}


def test_both_spellings_of_postgres_are_one() -> None:
    assert load_settings(environ={"AF_DB_DSN": "postgresql://af:pw@h:5432/d"}).db_dsn == "postgres://af:pw@h:5432/d"


@pytest.mark.parametrize("name", ["gvisor", "docker", "wasm"])
def test_a_sandbox_is_chosen_by_name(name: str) -> None:
    assert load_settings(environ={"AF_SANDBOX": name.upper()}).sandbox == name


def test_an_unknown_sandbox_is_refused() -> None:
    assert "not a sandbox we know" in problems_of({"AF_SANDBOX": "glass"})["AF_SANDBOX"].message


def test_settings_cannot_be_changed_once_made() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Settings().shards = 3  # type: ignore[misc]


def test_a_password_never_shows_in_the_settings_themselves() -> None:
    dsn = "postgres://af:hush@h/d"

    assert "hush" not in f"{Settings(db_dsn=dsn)!r} {Settings(db_dsn=dsn)}"


def test_a_password_never_shows_in_an_error_also_when_the_address_is_malformed() -> None:
    with pytest.raises(InvalidSettings) as caught:
        load_settings(environ={"AF_DB_DSN": "postgres://af:hush@:x/d", "AF_NATS_URL": "nats://hush@:x"})

    assert "hush" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgres://af:p:w@d@h:1/d", "postgres://af:***@h:1/d"),
        ("postgres://h/d?user=af&password=hush&x=1", "postgres://h/d?user=af&password=***&x=1"),
        ("nats://token@h:4222", "nats://***@h:4222"),
        ("nats://127.0.0.1:4222", "nats://127.0.0.1:4222"),
    ],
)
def test_an_address_is_shown_without_its_secret(url: str, shown: str) -> None:
    assert without_password(url) == shown


def test_every_setting_says_what_it_is_for() -> None:
    assert all(field.description for field in Settings.model_fields.values())


def test_the_page_of_the_error_names_every_setting() -> None:
    page = (Path(__file__).parents[3] / "docs/errors/AF1501.md").read_text()

    assert [name for name in Settings.model_fields if f"AF_{name.upper()}" not in page] == []


def test_a_child_inherits_everything_but_our_own_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AF_SHARDS", "4")
    monkeypatch.setenv("PLAIN", "1")

    inherited = inherited_environment()

    assert inherited["PLAIN"] == "1"
    assert not [name for name in inherited if name.startswith("AF_")]


def test_a_process_that_takes_our_place_sees_our_variables_and_the_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AF_SHARDS", "4")

    assert environment_with({"AF_AGENTS_FILE": "a.yaml"}).items() >= {("AF_SHARDS", "4"), ("AF_AGENTS_FILE", "a.yaml")}


def test_what_was_chosen_reaches_a_child_whatever_file_lies_where_it_starts() -> None:
    chosen = load_settings(environ={"AF_SHARDS": "4", "AF_HOME": "there", "AF_DRAIN_S": "2.5"})
    Path("agentflow.yaml").write_text("shards: 99\n")

    assert load_settings(environ=as_environment(chosen)) == chosen


def test_artifacts_lie_in_the_home_unless_told_otherwise(tmp_path: Path) -> None:
    assert load_settings(environ={}).artifacts_url == f"file://{tmp_path}/.agentflow/artifacts"
    for url in ("file:///srv/artifacts", "s3://bucket", "s3://bucket/a/b?endpoint=http://127.0.0.1:9000&region=eu"):
        assert load_settings(environ={"AF_ARTIFACTS_URL": url}).artifacts_url == url


@pytest.mark.parametrize(
    "url",
    ["/srv", "file://", "file:///", "file://host/srv", "s3://", "s3:///x", "http://x", "s3://b?acl=public",
     "s3://key:secret@bucket", "s3://b/../c", "s3://b?endpoint=nowhere"],
)  # fmt: skip
def test_an_artifact_address_that_cannot_be_used_is_refused(url: str) -> None:
    assert "must" in problems_of({"AF_ARTIFACTS_URL": url})["AF_ARTIFACTS_URL"].message


def test_keys_come_from_the_variable_or_a_file_and_are_never_shown(tmp_path: Path) -> None:
    key = written_key("k1", bytes(range(32)))
    file = tmp_path / "keys"
    file.write_text(f"# ours\n{key}\n")

    given = load_settings(environ={"AF_ENCRYPTION_KEYS": key})
    from_file = load_settings(environ={"AF_ENCRYPTION_KEYS_FILE": str(file)})

    assert (repr(given.key_ring()), repr(from_file.key_ring())) == ("KeyRing(k1)", "KeyRing(k1)")
    assert load_settings(environ={}).key_ring() is None
    assert key[3:] not in f"{given!r} {given}"
    assert as_environment(given)["AF_ENCRYPTION_KEYS"] == key


def test_keys_that_cannot_be_used_are_refused_without_being_shown(tmp_path: Path) -> None:
    wrong = written_key("k1", b"far too short")
    found = problems_of({"AF_ENCRYPTION_KEYS": wrong, "AF_ENCRYPTION_KEYS_FILE": str(tmp_path / "gone")})

    assert "13 bytes instead of 32" in found["AF_ENCRYPTION_KEYS"].message
    assert "cannot be read" in found["AF_ENCRYPTION_KEYS_FILE"].message
    assert wrong[3:] not in str(found)


def test_workflows_see_only_the_variables_that_are_named_and_set() -> None:
    settings = load_settings(environ={"AF_WORKFLOW_ENV": "REGION, STAGE"})

    assert allowed_environment(settings, {"REGION": "eu", "SECRET": "x"}) == {"REGION": "eu"}
    assert allowed_environment(load_settings(environ={}), {"REGION": "eu"}) == {}


@pytest.mark.parametrize(
    ("given", "described"),
    [({}, False), ({"AF_MODE": "dev"}, True), ({"AF_GRPC_REFLECTION": "true"}, True),
     ({"AF_MODE": "dev", "AF_GRPC_REFLECTION": "false"}, False)],
)  # fmt: skip
def test_grpc_describes_itself_in_development_unless_told_otherwise(given, described):
    settings = load_settings(environ={"AF_CONFIG_FILE": "/dev/null", **given})

    assert settings.grpc_reflection is described
