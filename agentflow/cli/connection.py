"""The control plane that this command talks to, as the settings name it."""

from agentflow.sdk.client import Client
from agentflow.settings import load_settings


def control_plane() -> Client:
    return Client(load_settings().api_url)
