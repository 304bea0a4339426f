"""Whose name jobs are started in. Tokens stay in memory: nothing is read from or written to ~/.globus_compute.

`ServiceIdentity` is the platform's own Globus client, the normal case. `UserIdentity` is one person's token, for
endpoints that map people to local accounts. Each makes a `Client` of its own, so no token is shared.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from globus_compute_sdk import Client
    from globus_sdk.authorizers import GlobusAuthorizer

HTTP_TIMEOUT_S = 10.0


class Identity(Protocol):
    """Makes clients of the Globus Compute service."""

    @property
    def name(self) -> str:
        """A name for logs. No secret."""
        ...

    def client(self) -> Client: ...


@dataclass(frozen=True)
class ServiceIdentity:
    """A Globus client with a secret. `environment` is one of the SDK's; empty: production."""

    client_id: str
    client_secret: str = field(repr=False)
    environment: str = ""

    @property
    def name(self) -> str:
        return f"client {self.client_id}"

    def client(self) -> Client:
        """Return a client that fetches and renews its token by itself."""
        from globus_compute_sdk import Client
        from globus_sdk import ClientApp, GlobusAppConfig

        app = ClientApp(
            "stream",
            client_id=self.client_id,
            client_secret=self.client_secret,
            config=GlobusAppConfig(token_storage="memory"),  # noqa: S106
        )
        # The token endpoint shares the SDK's long defaults otherwise: 5 retries of 60 s.
        app._login_client.transport.http_timeout = HTTP_TIMEOUT_S
        app._login_client.retry_config.max_retries = 1
        return impatient(Client(environment=self.environment or None, do_version_check=False, app=app))


@dataclass(frozen=True)
class UserIdentity:
    """One person, by an authorizer that knows their Compute token (and renews it, when it is one that can)."""

    user: str
    authorizer: GlobusAuthorizer = field(repr=False)
    environment: str = ""

    @property
    def name(self) -> str:
        return f"user {self.user}"

    def client(self) -> Client:
        from globus_compute_sdk import Client

        made = Client(environment=self.environment or None, do_version_check=False, authorizer=self.authorizer)
        return impatient(made)


def impatient(client: Client) -> Client:
    """Cut the SDK's own patience: it would send a submit whose reply is lost up to six times, and wait 60 s each.

    One retry stays, after a 401, with a token that is fetched anew.
    """
    from globus_sdk.transport import RetryCheckCollection
    from globus_sdk.transport.default_retry_checks import check_expired_authorization

    for part in (client._compute_web_client.v2, client._compute_web_client.v3):
        checks = RetryCheckCollection()
        checks.register_check(check_expired_authorization)
        part.retry_config.checks = checks
        part.retry_config.max_retries = 1
        part.transport.http_timeout = HTTP_TIMEOUT_S
    return client
