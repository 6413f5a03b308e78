"""gRPC: the same operations as REST, from proto/agentflow/v1. Translates; decides nothing.

Knows grpc and the generated code; never storage or the bus. Errors become statuses in `errors`.
"""
