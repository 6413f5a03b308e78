"""The internet of the egress tests, in a network namespace of its own: a name server and a few web servers.

`python far.py FOLDER` configures the addresses below on this namespace, serves, and writes what it sees to
FOLDER/queries and FOLDER/hits, a line each. Nothing here can be reached from outside the test's two namespaces.
"""

import http.server
import socket
import socketserver
import ssl
import subprocess
import sys
import threading
from pathlib import Path

from dnslib import AAAA, CNAME, QTYPE, RR, A
from dnslib.server import BaseResolver, DNSLogger, DNSServer

PUBLIC, OTHER, PUBLIC_V6 = "93.184.216.34", "93.184.216.35", "2606:2800:220:1::34"
INTERNAL, METADATA, NAMES = "10.0.0.5", "169.254.169.254", "10.53.0.53"
ADDRESSES = (PUBLIC, OTHER, INTERNAL, METADATA, NAMES, "100.100.100.200", "192.168.7.7", PUBLIC_V6, "fd00:ec2::254")
BIG = 3_000_000

folder = Path(sys.argv[1])


def note(kind: str, line: str) -> None:
    with (folder / kind).open("a") as file:
        file.write(line + "\n")


class Names(BaseResolver):
    """Honest about most names; `rebind.test` changes its mind, as an attacker's would."""

    def __init__(self) -> None:
        self._asked = 0

    def resolve(self, request, handler):
        name, kind = str(request.q.qname).rstrip("."), QTYPE[request.q.qtype]
        note("queries", f"{kind} {name}")
        answer = request.reply()
        for record in self._records(name, kind):
            owner = "private.test" if name == "alias.test" and isinstance(record, A) else request.q.qname
            answer.add_answer(RR(owner, getattr(QTYPE, record.__class__.__name__), rdata=record, ttl=0))
        return answer

    def _records(self, name: str, kind: str) -> list:
        if name == "rebind.test" and kind == "A":
            self._asked += 1
            return [A(PUBLIC if self._asked % 2 else "127.0.0.1")]
        known = {
            ("allowed.test", "A"): [A(PUBLIC)],
            ("other.test", "A"): [A(OTHER)],
            ("secret.test", "A"): [A(PUBLIC)],
            ("unlisted.test", "A"): [A(OTHER)],
            ("mixed.test", "A"): [A(PUBLIC), A(INTERNAL)],
            ("private.test", "A"): [A(INTERNAL)],
            ("cloud.test", "A"): [A(METADATA)],
            ("alias.test", "A"): [CNAME("private.test"), A(INTERNAL)],
            ("six.test", "AAAA"): [AAAA(PUBLIC_V6)],
            ("ula.test", "AAAA"): [AAAA("fd00:ec2::254")],
            ("mapped.test", "AAAA"): [AAAA("::ffff:a00:5")],
            ("nat64.test", "AAAA"): [AAAA("64:ff9b::a9fe:a9fe")],
            ("own.test", "A"): [A("10.9.0.1")],
            ("self.test", "A"): [A("93.184.216.99")],
            ("ours.test", "A"): [A("93.184.216.36")],
        }
        return known.get((name, kind), [])


class Pages(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else b""
        if self.headers.get("Transfer-Encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size + 2)[:-2]
            self.rfile.readline()
        where = self.connection.getsockname()[0].removeprefix("::ffff:")
        note("hits", f"{where} {self.command} {self.headers['Host']}{self.path} {self.headers.get('Authorization')}")
        moved = {"/to-metadata": f"http://{METADATA}/latest", "/to-other": "http://other.test/landed"}.get(self.path)
        if self.path == "/big":
            body = b"x" * BIG
        elif moved is None:
            body = f"hello from {where}, {self.command} {self.path} {body.decode()}".encode()
        self.send_response(302 if moved else 200)
        if moved:
            self.send_header("Location", moved)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PUT = _serve  # noqa: N815 - the library's own names

    def log_message(self, *_) -> None:
        """Hits are noted above."""


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "far", 0


class Server6(Server):
    address_family = socket.AF_INET6


def main() -> None:
    sys.stdin.readline()  # our end of the cable is plugged in now
    run = subprocess.check_call
    run(["ip", "link", "set", "lo", "up"])
    run(["ip", "link", "set", "far", "up"])
    run(["ip", "addr", "add", "10.9.0.2/30", "dev", "far"])
    run(["ip", "-6", "addr", "add", "2001:db8:9::2/64", "dev", "far", "nodad"])
    for address in ADDRESSES:
        run(["ip", "addr", "add", address, "dev", "lo", *(["nodad"] if ":" in address else [])])
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(folder / "server.pem")
    servers = [Server(("0.0.0.0", 80), Pages), Server6((PUBLIC_V6, 80), Pages), Server6(("fd00:ec2::254", 80), Pages)]
    secure = Server(("0.0.0.0", 443), Pages)
    secure.socket = tls.wrap_socket(secure.socket, server_side=True, do_handshake_on_connect=False)
    for server in (*servers, secure, Server(("0.0.0.0", 22), Pages)):
        threading.Thread(target=server.serve_forever, daemon=True).start()
    DNSServer(Names(), address=NAMES, port=53, logger=DNSLogger("-request,-reply,-truncated,-data")).start_thread()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.read()  # until whoever started us goes


main()
