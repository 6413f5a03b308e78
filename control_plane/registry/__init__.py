"""What is known by name: the workflows of each tenant, which agents are alive, and how executions are listed.

Rules and shapes only; what is stored is stored by `control_plane.storage`, which implements the ports here.
Nothing in this room changes an execution.
"""
