import pytest

from control_plane.storage.address import BadDatabaseAddress, PostgresAddress, SqliteAddress, parse_address
from control_plane.storage.database import durability_faults

SECRET = "s3cr3t"


@pytest.mark.parametrize(
    ("dsn", "path"),
    [
        ("sqlite:///state/agentflow.db", "state/agentflow.db"),
        ("sqlite:////var/lib/agentflow.db", "/var/lib/agentflow.db"),
        ("sqlite:///with space and 100%.db", "with space and 100%.db"),
    ],
)
def test_a_sqlite_address_is_a_path(dsn: str, path: str) -> None:
    address = parse_address(dsn)

    assert isinstance(address, SqliteAddress)
    assert str(address.path) == path


@pytest.mark.parametrize(
    ("dsn", "shown"),
    [
        (f"postgres://me:{SECRET}@db.example:5433/main", "PostgreSQL at db.example:5433, database main"),
        (f"postgresql://me:{SECRET}@db.example/main?sslmode=require", "PostgreSQL at db.example, database main"),
        (f"postgres://me:{SECRET}%40@[::1]:5432/main", "PostgreSQL at ::1:5432, database main"),
        (f"postgres://me:{SECRET}@a:1,b:2/main", "PostgreSQL at a:1,b:2, database main"),
        (f"postgres:///main?host=/run/pg&password={SECRET}", "PostgreSQL at the local socket, database main"),
    ],
)
def test_a_postgresql_address_is_shown_without_its_password(dsn: str, shown: str) -> None:
    address = parse_address(dsn)

    assert isinstance(address, PostgresAddress)
    assert address.dsn == dsn
    assert address.shown == shown
    assert SECRET not in repr(address)


@pytest.mark.parametrize(
    "dsn",
    [
        "",
        "agentflow.db",
        "sqlite://agentflow.db",
        "sqlite:///",
        "sqlite:///:memory:",
        "sqlite:///file.db?mode=memory",
        f"mysql://me:{SECRET}@db/main",
        f"postgres://me:{SECRET}/x@db/main",
        f"postgres://me:12/{SECRET}@db/main",
        f"postgres://me:{SECRET}#x@db/main",
        f"postgres://me:12#{SECRET}@db/main",
        f"postgres://me:{SECRET}?x@db/main",
        f"postgres://me:12?{SECRET}@db/main",
        f"postgres://me:x@{SECRET}/x@db/main",
        f"postgres://me:[{SECRET}@db/main",
        f"postgres://me:x@db:{SECRET}/main",
    ],
)
def test_an_address_that_cannot_be_used_is_refused_without_repeating_it(dsn: str) -> None:
    with pytest.raises(BadDatabaseAddress) as refused:
        parse_address(dsn)

    assert SECRET not in str(refused.value)


def test_only_settings_that_survive_a_power_cut_are_accepted() -> None:
    safe = {"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on"}

    assert durability_faults("postgresql", safe) == []
    assert durability_faults("postgresql", {**safe, "synchronous_commit": "remote_apply"}) == []
    assert durability_faults("postgresql", {**safe, "fsync": "off", "synchronous_commit": "off"}) == [
        "fsync is off",
        "synchronous_commit is off",
    ]
    assert durability_faults("sqlite", {"journal_mode": "wal", "synchronous": "2"}) == []
    assert durability_faults("sqlite", {"journal_mode": "delete", "synchronous": "1"}) == [
        "journal_mode is delete",
        "synchronous is 1",
    ]
