"""The only way out of a sandbox: a proxy outside it, reached through one unix socket per attempt.

`policy` (pure) decides, `request_head` and `client_hello` (pure) read what the sandbox claims, `upstream` resolves,
checks and connects, `door` is the socket of one attempt with its fence and its records, `ways` are the ways in (HTTP,
CONNECT, SOCKS5, plain TLS), which all end in the same decision. `inside` is the one file that runs in the sandbox.

Must not enter: buses and settings (records leave by a callback), following redirects (each hop is a new request and a
new decision), and trust in anything the sandbox says about itself.
"""
