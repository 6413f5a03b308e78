"""The control plane that this command talks to, as the settings name it, and who it says it is there.

In this order: AF_TOKEN, AF_API_KEY, what `af auth login` stored for that address, and the key that an embedded platform
on this machine left in its home.
"""

from agentflow.credentials import local_credential, stored_credential
from agentflow.sdk.client import Client
from agentflow.settings import Settings, load_settings


def control_plane() -> Client:
    settings = load_settings()
    return client_of(settings, bearer_of(settings))


def client_of(settings: Settings, bearer: str | None) -> Client:
    tls = settings.tls_files() if settings.api_url.startswith("https://") else None
    return Client(settings.api_url, token=bearer, tls=tls)


def bearer_of(settings: Settings) -> str | None:
    if settings.token or settings.api_key:
        return settings.token or settings.api_key
    found = stored_credential(settings.credentials_file, settings.api_url)
    found = found or local_credential(settings.home, settings.api_url)
    return None if found is None else found.bearer
