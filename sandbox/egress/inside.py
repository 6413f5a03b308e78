"""The one part of egress that runs inside: makes ordinary programs find the socket without knowing of it.

A backend starts it in the sandbox's network namespace, as a script of the standard library alone:
`python -I inside.py SOCKET`. It brings the loopback up, answers every DNS question with 127.0.0.1 (nothing is ever
asked of a real server from in here), and hands each connection to ports 80 and 443 to the socket, byte for byte.
Who may talk to whom is decided at the other end; this file is convenience, not a wall.
"""

import contextlib
import fcntl
import os
import socket
import struct
import sys
import threading

_LOOPBACK = "127.0.0.1"
_PORTS = (80, 443)
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1
_A, _AAAA, _IN = 1, 28, 1
_CHUNK = 64 * 1024
_BACKLOG = 64


def main(egress: str) -> None:
    raise_loopback()
    questions = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    questions.bind((_LOOPBACK, 53))
    for port in _PORTS:
        listening = socket.create_server((_LOOPBACK, port), backlog=_BACKLOG)
        threading.Thread(target=_accept, args=(listening, egress), daemon=True).start()
    os.write(1, b"ready\n")
    while True:
        question, asker = questions.recvfrom(4096)
        answer = reply(question)
        if answer is not None:
            questions.sendto(answer, asker)


def raise_loopback() -> None:
    """A new network namespace has its loopback down, and with it every address in it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sh14x", b"lo", 0)
        (flags,) = struct.unpack_from("16xh", fcntl.ioctl(control, _SIOCGIFFLAGS, request))
        if flags & _IFF_UP:
            return  # most sandboxes raise it themselves, and leave nobody the right to
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | _IFF_UP))


def reply(question: bytes) -> bytes | None:
    """127.0.0.1 for every name, nothing for every other kind of question, silence for what is not a question."""
    if len(question) < 12 or question[2] & 0x80 or question[4:6] != b"\x00\x01":
        return None
    at = 12
    while at < len(question) and question[at]:
        at += 1 + question[at]
    end = at + 5
    if end > len(question):
        return None
    kind, family = struct.unpack_from("!HH", question, at + 1)
    answers = 1 if (kind, family) == (_A, _IN) else 0
    head = question[:2] + b"\x81\x80" + struct.pack("!HHHH", 1, answers, 0, 0)
    record = struct.pack("!HHHIH", 0xC00C, _A, _IN, 1, 4) + socket.inet_aton(_LOOPBACK)
    return head + question[12:end] + record * answers


def _accept(listening: socket.socket, egress: str) -> None:
    while True:
        here, _ = listening.accept()
        there = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            there.connect(egress)
        except OSError:
            here.close()
            there.close()
            continue
        for source, target in ((here, there), (there, here)):
            threading.Thread(target=_move, args=(source, target), daemon=True).start()


def _move(source: socket.socket, target: socket.socket) -> None:
    """Until its end, and then say so onward; the sockets close when the other direction has let go of them too."""
    with contextlib.suppress(OSError):
        while data := source.recv(_CHUNK):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    main(sys.argv[1])
