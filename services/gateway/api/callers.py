"""Where a request comes from: the token that it brings, or a browser's cookie, and what its sender may do."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import urlsplit

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.requests import HTTPConnection

from services.gateway.adapters.tokens import ANONYMOUS, Principal, Scope
from services.gateway.api.common import door
from services.gateway.api.guard import came_by_tls
from services.gateway.door import Gateway
from services.gateway.problems import Problem, shown

_bearer = HTTPBearer(auto_error=False, description="A token of the cell. Not needed where none are configured.")


_NO_TOKEN = (
    "the request has no bearer token: send `Authorization: Bearer TOKEN`. The token of a cell that `sanjaya up` keeps "
    "is in the file `token` of its state directory, for its user; `sanjaya page` prints a link for a browser"
)


Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]


async def principal(request: Request, credentials: Credentials) -> Principal:
    """The sender of the request.

    Raises:
        Problem: 401: no token, or an unknown one; 403: a browser's request comes from another page.
    """
    gateway = await door(request)
    if credentials is None and (owner := _of_browser(gateway, request)) is not None:
        return owner
    return _known(gateway, request, credentials.credentials if credentials is not None else None)


def sender(gateway: Gateway, connection: HTTPConnection) -> Principal:
    """As `principal`, of a request that is no HTTP request any more: a WebSocket. No browser has to open one.

    Raises:
        Problem: 401.
    """
    scheme, _, token = connection.headers.get("authorization", "").partition(" ")
    return _known(gateway, connection, token.strip() if scheme.lower() == "bearer" else None)


def _of_browser(gateway: Gateway, request: Request) -> Principal | None:
    """The owner of the token that a browser's cookie stands for.

    Raises:
        Problem: 403: the request changes something, and comes from another page: browsers send a host's cookies to
            all of its ports, and with requests of the pages of all of its ports.
    """
    cookie = request.cookies.get(gateway.browsers.cookie)
    token_id = gateway.browsers.token_id(cookie) if cookie is not None else None
    owner = gateway.tokens.by_id(token_id) if gateway.tokens is not None and token_id is not None else None
    asks = request.method in ("GET", "HEAD", "OPTIONS")
    origin = urlsplit(request.headers.get("origin", "")).netloc
    if owner is not None and not asks and origin != request.headers.get("host"):
        raise Problem("forbidden", "the request comes from a page of another site")
    return owner


def _known(gateway: Gateway, connection: HTTPConnection, token: str | None) -> Principal:
    if gateway.tokens is None and not came_by_tls(connection.scope):
        return ANONYMOUS
    challenge = {"WWW-Authenticate": 'Bearer realm="sanjaya"'}
    if token is None:
        raise Problem("unauthenticated", _NO_TOKEN, headers=challenge)
    known = (gateway.tokens, gateway.agent_tokens)
    found = next((owner for tokens in known if tokens is not None and (owner := tokens.find(token))), None)
    if found is None:
        raise Problem("unauthenticated", "the token is not known here", headers=challenge)
    return found


def allowed(scope: Scope, *others: Scope) -> Any:
    """A dependency: the principal, which has this scope, or one of the others."""

    # Each dependency of a dependency costs every request as much as a look at its parameters does.
    async def check(request: Request, credentials: Credentials) -> Principal:
        caller = await principal(request, credentials)
        if not any(caller.may(each) for each in (scope, *others)):
            raise refuse_scope(caller, scope)
        return caller

    return Depends(check)


def refuse_scope(caller: Principal, scope: Scope) -> Problem:
    """403 for a principal without this scope."""
    has = ", ".join(sorted(caller.scopes)) or "none"
    return Problem("forbidden", f"{caller.name} lacks the scope {scope.value} (has {has})")


def require_tenant(caller: Principal, tenant: str) -> None:
    """Refuse a token that is not for this tenant.

    Raises:
        Problem: 403.
    """
    if not caller.is_for(tenant):
        own = ", ".join(sorted(caller.tenants or ()))
        raise Problem("forbidden", f"the token of {caller.name} is not for tenant {shown(tenant)} (it is for {own})")


Reader = Annotated[Principal, allowed(Scope.READ)]
Submitter = Annotated[Principal, allowed(Scope.SUBMIT)]
Operator = Annotated[Principal, allowed(Scope.OPERATE)]
Admin = Annotated[Principal, allowed(Scope.ADMIN)]
Agent = Annotated[Principal, allowed(Scope.AGENT)]
CodeReader = Annotated[Principal, allowed(Scope.READ, Scope.AGENT)]
