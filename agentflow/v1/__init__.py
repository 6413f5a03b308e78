"""Generated from proto/agentflow/v1 by `make proto`; never edited by hand. Used by gRPC servers and clients only."""
