"""Egress against a real resolver and real servers: what is granted works, and nothing else gets out."""

import socket
import ssl

import pytest

PUBLIC, METADATA = "93.184.216.34", "169.254.169.254"


class Inside:
    """What a program in the sandbox could do with the socket it was given."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.dialled: list[socket.socket] = []

    def dial(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(15)
        connection.connect(self.path)
        self.dialled.append(connection)
        return connection

    def say(self, raw: bytes) -> bytes:
        """Everything that comes back to these bytes."""
        with self.dial() as connection:
            connection.sendall(raw)
            return drained(connection)

    def get(self, url: str, *headers: str) -> bytes:
        host = url.split("/")[2]
        lines = [f"GET {url} HTTP/1.1", f"Host: {host}", *headers, "", ""]
        return self.say("\r\n".join(lines).encode("latin-1"))

    def connect(self, authority: str) -> tuple[socket.socket, bytes]:
        connection = self.dial()
        connection.sendall(f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode("latin-1"))
        return connection, connection.recv(4096)

    def socks(self, host: bytes, port: int, kind: int = 3) -> tuple[socket.socket, int]:
        connection = self.dial()
        connection.sendall(b"\x05\x01\x00")
        assert connection.recv(2) == b"\x05\x00"
        name = bytes([len(host)]) + host if kind == 3 else host
        connection.sendall(b"\x05\x01\x00" + bytes([kind]) + name + port.to_bytes(2))
        return connection, connection.recv(64)[1]


def drained(connection: socket.socket) -> bytes:
    answer = bytearray()
    try:
        while data := connection.recv(65536):
            answer += data
    except ConnectionResetError:
        pass
    return bytes(answer)


def refused(answer: bytes) -> str:
    """The code of a refusal; fails where something was let through."""
    assert answer.startswith((b"HTTP/1.1 403", b"HTTP/1.1 502")), answer[:200]
    line = next(line for line in answer.split(b"\r\n") if line.startswith(b"X-AgentFlow-Egress: "))
    return line.partition(b": ")[2].decode()


@pytest.fixture
def inside(world):
    opened = []

    def door(*grants: str, **more) -> Inside:
        opened.append(Inside(world.door(*grants, **more)))
        return opened[-1]

    yield door
    for connection in [connection for each in opened for connection in each.dialled]:
        connection.close()


@pytest.fixture
def quiet(world):
    """Fails a test in which a server was reached or a question reached the resolver."""
    hits, queries = len(world.seen("hits")), len(world.seen("queries"))
    yield
    assert world.seen("hits")[hits:] == []
    assert world.seen("queries")[queries:] == []


@pytest.fixture
def unreached(world):
    """Fails a test in which any server was reached."""
    before = len(world.seen("hits"))
    yield
    assert world.seen("hits")[before:] == []


def trusting(world) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=world.folder / "ca.pem")


def test_a_granted_host_answers_over_http_and_https(inside, world):
    out = inside("allowed.test")

    plain = out.get("http://allowed.test/a?b=c")
    secure = out.get("https://allowed.test/d")

    assert b"hello from 93.184.216.34, GET /a?b=c" in plain
    assert b"hello from 93.184.216.34, GET /d" in secure


def test_a_body_travels_by_length_and_by_chunks(inside):
    out = inside("allowed.test")
    head = b"POST http://allowed.test/p HTTP/1.1\r\nHost: allowed.test\r\n"

    assert out.say(head + b"Content-Length: 5\r\n\r\nhello").endswith(b"POST /p hello")
    chunks = b"Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"
    assert out.say(head + chunks).endswith(b"POST /p hello")


def test_a_tunnel_carries_tls_end_to_end(inside, world):
    tunnel, answer = inside("allowed.test").connect("allowed.test:443")
    assert b" 200 " in answer

    with trusting(world).wrap_socket(tunnel, server_hostname="allowed.test") as secure:
        secure.sendall(b"GET /t HTTP/1.1\r\nHost: allowed.test\r\nConnection: close\r\n\r\n")
        assert b"GET /t" in drained(secure)


def test_bare_tls_finds_its_way_by_its_hello(inside, world):
    connection = inside("allowed.test").dial()

    with trusting(world).wrap_socket(connection, server_hostname="allowed.test") as secure:
        secure.sendall(b"GET /bare HTTP/1.1\r\nHost: allowed.test\r\nConnection: close\r\n\r\n")
        assert b"GET /bare" in drained(secure)


def test_socks5_is_held_to_the_same_rules(inside, quiet):
    out = inside("allowed.test")

    assert out.socks(b"unlisted.test", 80)[1] == 2
    assert out.socks(b"evil.test\x00.allowed.test", 80)[1] == 2
    assert out.socks(socket.inet_aton(METADATA), 80, kind=1)[1] == 2
    assert out.socks(bytes(15) + b"\x01", 80, kind=4)[1] == 2
    assert out.socks(b"allowed.test", 22)[1] == 2


def test_socks5_reaches_what_is_granted(inside):
    connection, reply = inside("allowed.test").socks(b"allowed.test", 80)

    assert reply == 0
    connection.sendall(b"GET /s HTTP/1.1\r\nHost: allowed.test\r\n\r\n")
    assert b"GET /s" in drained(connection)


def test_e1_no_grant_is_no_way_out(inside, quiet):
    assert refused(inside().get("http://allowed.test/")) == "not_granted"


TRICKS = [
    *("unlisted.test", "allowed.test.evil.test", "evilallowed.test", "sub.allowed.test", "allowed.test@evil.test"),
    *("evil.test%00.allowed.test", "evil.test\\.allowed.test", "evil.test\t.allowed.test", "allowed.test:22"),
    *("allowed.test:6379", "allowed.test:25", "metadata.google.internal", "localhost", "[::1]", "[::ffff:10.0.0.5]"),
    *("127.0.0.1", "127.1", "0x7f.1", "2130706433", "0", METADATA, "2852039166", "0xa9fea9fe", "10.0.0.5", "10.9.0.1"),
    *("[fd00:ec2::254]", "[64:ff9b::a9fe:a9fe]", "100.100.100.200", "93.184.216.34", "*.test", "allowed.test..", ""),
]


@pytest.mark.parametrize("authority", TRICKS)
def test_e3_e5_e6_e9_no_trick_with_names_gets_out_or_asks_a_name_server(inside, quiet, authority):
    out = inside("allowed.test")

    refused(out.get(f"http://{authority}/"))
    refused(out.say(f"GET / HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode()))
    _, answer = out.connect(authority if ":" in authority.rpartition("]")[2] else f"{authority}:443")
    refused(answer)


@pytest.mark.parametrize(
    "name",
    [
        "mixed.test", "private.test", "cloud.test", "alias.test", "ula.test", "mapped.test", "nat64.test", "own.test",
        "self.test", "ours.test",
    ],
)  # fmt: skip
def test_e4_e5_a_granted_name_that_leads_inside_is_refused(inside, unreached, name):
    assert refused(inside(name).get(f"http://{name}/")) == "address_denied"
    _, answer = inside(name).connect(f"{name}:443")
    assert refused(answer) == "address_denied"


def test_e4_a_name_that_changes_its_mind_is_asked_once_for_each_connection(inside, world):
    out = inside("rebind.test")
    before = len(world.seen("queries"))

    answers = [out.get("http://rebind.test/r") for _ in range(6)]

    let_through = [answer for answer in answers if b" 200 " in answer]
    assert 2 <= len(let_through) <= 4
    assert all(b"hello from 93.184.216.34" in answer for answer in let_through)
    assert {refused(answer) for answer in answers if answer not in let_through} == {"address_denied"}
    asked = [line for line in world.seen("queries")[before:] if line == "A rebind.test"]
    assert len(asked) == 6


def test_a_public_address_of_the_sixth_kind_is_fine(inside):
    assert b"hello from 2606:2800:220:1::34" in inside("six.test").get("http://six.test/")


def test_e4_a_redirect_is_a_new_request_and_a_new_decision(inside, world):
    out = inside("allowed.test")

    answer = out.get("http://allowed.test/to-metadata")
    assert b"Location: http://169.254.169.254/latest" in answer

    assert refused(out.get("http://169.254.169.254/latest")) == "not_granted"
    assert not [hit for hit in world.seen("hits") if hit.startswith(METADATA)]


def test_e7_fronting_is_refused(inside, world, unreached):
    out = inside("allowed.test", "other.test")

    assert refused(out.get("http://allowed.test/", "Host: other.test")) == "request_malformed"
    mismatch = b"GET http://allowed.test/ HTTP/1.1\r\nHost: other.test\r\n\r\n"
    assert refused(out.say(mismatch)) == "host_mismatch"
    tunnel, answer = out.connect("allowed.test:443")
    assert b" 200 " in answer
    with pytest.raises((ssl.SSLError, ConnectionError)):
        trusting(world).wrap_socket(tunnel, server_hostname="other.test")
    tunnel, _ = out.connect("allowed.test:80")
    tunnel.sendall(b"GET / HTTP/1.1\r\nHost: other.test\r\n\r\n")
    assert refused(drained(tunnel)) == "host_mismatch"


def test_e7_tls_without_a_name_does_not_leave(inside, unreached):
    tunnel, _ = inside("allowed.test").connect("allowed.test:443")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE

    with pytest.raises((ssl.SSLError, ConnectionError)):
        context.wrap_socket(tunnel)


def test_e7_a_tunnel_carries_nothing_but_tls_or_one_request(inside, unreached):
    tunnel, _ = inside("allowed.test").connect("allowed.test:443")
    tunnel.sendall(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")

    assert refused(drained(tunnel)) == "request_malformed"


def test_e7_a_second_request_behind_the_first_is_not_sent_on(inside, world):
    before = len(world.seen("hits"))
    first = b"GET http://allowed.test/1 HTTP/1.1\r\nHost: allowed.test\r\n\r\n"

    answer = inside("allowed.test", "other.test").say(first + first.replace(b"allowed.test", b"other.test"))

    assert answer.count(b"HTTP/1.1") == 1
    assert len(world.seen("hits")[before:]) == 1


def test_e7_a_body_of_two_lengths_is_refused(inside, unreached):
    smuggled = (
        b"POST http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 4\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: other.test\r\n\r\n"
    )
    assert refused(inside("allowed.test").say(smuggled)) == "request_malformed"


@pytest.mark.parametrize("url", ["file:///etc/passwd", "gopher://allowed.test/", "ftp://allowed.test/"])
def test_e9_only_http_and_https_leave(inside, quiet, url):
    refused(inside("allowed.test").say(f"GET {url} HTTP/1.1\r\n\r\n".encode()))


def test_e9_an_endless_answer_is_cut(inside, world):
    out = inside("allowed.test", limits={"bytes_down_max": 100_000})

    answer = out.get("http://allowed.test/big")

    assert len(answer) <= 100_000
    assert world.records()[-1].reason == "response_too_large"


def test_e10_the_proxy_puts_the_credential_in_and_only_for_its_host(inside, world):
    credentials = [{"host": "secret.test", "secret": "TOKEN"}]
    out = inside("secret.test", "other.test", credentials=credentials)
    before = len(world.seen("hits"))

    absolute = out.get("https://secret.test/a", "Authorization: Bearer placeholder")
    other = out.get("https://other.test/b")

    assert b" 200 " in absolute
    assert b" 200 " in other
    first, second = world.seen("hits")[before:]
    assert first == "93.184.216.34 GET secret.test/a Bearer canary-3f9a1c77d2"
    assert second == "93.184.216.35 GET other.test/b None"
    assert b"canary" not in absolute + other
    assert "canary" not in "".join(world.seen("records"))
    assert {record.secret for record in world.records()} == {"", "TOKEN"}


def test_e10_a_credential_never_travels_in_the_clear(inside, unreached):
    out = inside("secret.test", credentials=[{"host": "secret.test", "secret": "TOKEN"}])

    assert refused(out.get("http://secret.test/")) == "credential_needs_tls"


def test_e10_a_missing_secret_stops_the_request(inside, unreached):
    out = inside("secret.test", credentials=[{"host": "secret.test", "secret": "NOWHERE"}])

    assert refused(out.get("https://secret.test/")) == "secret_missing"


def test_e10_a_client_that_speaks_tls_itself_gets_its_credential_too(inside, world):
    out = inside("secret.test", credentials=[{"host": "secret.test", "secret": "TOKEN"}])
    tunnel, _ = out.connect("secret.test:443")
    context = ssl.create_default_context(cafile=world.folder / "authority.pem")
    before = len(world.seen("hits"))

    with context.wrap_socket(tunnel, server_hostname="secret.test") as secure:
        secure.sendall(b"GET /tls HTTP/1.1\r\nHost: secret.test\r\n\r\n")
        answer = drained(secure)

    assert b"GET /tls" in answer
    assert world.seen("hits")[before:] == ["93.184.216.34 GET secret.test/tls Bearer canary-3f9a1c77d2"]


def test_e7_fronting_inside_tls_that_we_end_is_refused(inside, world, unreached):
    out = inside("secret.test", "other.test", credentials=[{"host": "secret.test", "secret": "TOKEN"}])
    tunnel, _ = out.connect("secret.test:443")
    context = ssl.create_default_context(cafile=world.folder / "authority.pem")

    with context.wrap_socket(tunnel, server_hostname="secret.test") as secure:
        secure.sendall(b"GET / HTTP/1.1\r\nHost: other.test\r\n\r\n")
        assert refused(drained(secure)) == "host_mismatch"


def test_e11_a_superseded_attempt_is_cut_off_at_once(inside, world):
    out = inside("allowed.test")
    tunnel, _ = out.connect("allowed.test:443")
    with trusting(world).wrap_socket(tunnel, server_hostname="allowed.test", suppress_ragged_eofs=True) as secure:
        secure.settimeout(3)  # far below every bound of the proxy's own: only the fence can end it so soon

        world.tell({"revoke": out.path})

        assert drained(secure) == b""
    assert refused(out.get("http://allowed.test/")) == "attempt_over"


def test_e12_every_decision_is_on_record_with_whom_it_was_for(inside, world):
    out = inside("allowed.test")
    before = len(world.records())

    out.get("http://allowed.test/x")
    out.get("http://unlisted.test/")
    out.say(b"nonsense\r\n\r\n")

    counts = world.tell({"counts": out.path})
    allowed, closed, denied, nonsense = world.records()[before:]
    assert counts == {"allowed": 1, "denied": 2, "closed": 1}
    assert (allowed.verdict, allowed.host, allowed.address) == ("allowed", "allowed.test", PUBLIC)
    assert (closed.verdict, closed.bytes_up > 20, closed.bytes_down > 20) == ("closed", True, True)
    assert (denied.verdict, denied.host, denied.reason) == ("denied", "unlisted.test", "not_granted")
    assert (nonsense.verdict, nonsense.reason) == ("denied", "request_malformed")
    site = allowed.site
    assert (site.tenant_id, site.execution_id, site.step, site.attempt) == ("acme", "exec_1", "fetch", 2)
    assert {record.site.tool for record in world.records()} == {"web.fetch"}


def test_a_crowd_of_connections_is_refused(inside, unreached):
    out = inside("allowed.test", limits={"connections_max": 3})
    idle = [out.dial() for _ in range(3)]
    for connection in idle:
        connection.sendall(b"G")

    assert refused(out.get("http://allowed.test/")) == "too_many"
