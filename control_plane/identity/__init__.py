"""Who asks, for which tenant, and what they may do: credentials in, principals out.

Holds the permissions and roles (pure), tokens, passwords, API keys and the rules around them. Knows no HTTP, no SQL
and no bus: `api` and `rpc` ask it with each request, `storage` keeps what it remembers. No secret may enter a message,
a log or a repr.
"""
