"""The message bus: names (`subjects`, pure) and the JetStream adapter of `ports.MessageBus`, `nats_jetstream`.

Only `nats_jetstream` and its `nats_connection` import `nats`; the other files speak through `wire.Line`. What a message
means, when it is sent and what follows from it must not enter: the bus carries, it does not decide.
"""
