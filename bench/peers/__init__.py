"""The same workloads on other engines, each in an environment and with servers of its own.

`run` installs and starts them; the `*_peer.py` scripts run there on `harness`, which is all they share.
"""
