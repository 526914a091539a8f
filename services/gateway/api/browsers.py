"""How a browser gets the rights of a token: a link with a code, made for a request that has the token."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response
from starlette.responses import PlainTextResponse, RedirectResponse

from services.gateway.adapters.browsers import CODE_VALID_S, COOKIE_VALID_S
from services.gateway.adapters.tokens import Principal
from services.gateway.api.callers import principal
from services.gateway.api.common import Door, answer, responses
from services.gateway.models.answers import BrowserLogin
from services.gateway.strict import StrictRoute

router = APIRouter(route_class=StrictRoute)

_ENTER = "/enter"


@router.post(
    "/v1/browser-logins",
    operation_id="createBrowserLogin",
    tags=["page"],
    status_code=201,
    responses=responses("BrowserLogin", status=201),
)
async def create(gateway: Door, caller: Annotated[Principal, Depends(principal)]) -> Response:
    """A link that opens the page, once, with the rights of this request's token."""
    if not caller.authenticated:
        return answer(BrowserLogin(path="/", valid_s=0.0), 201)
    code = gateway.browsers.code_for(caller.token_id)
    return answer(BrowserLogin(path=f"{_ENTER}?code={code}", valid_s=CODE_VALID_S), 201)


@router.get(_ENTER, include_in_schema=False)
async def enter(gateway: Door, code: Annotated[str, Query(max_length=64)]) -> Response:
    """Where the link leads: the browser gets its cookie, and the page."""
    cookie = gateway.browsers.enter(code)
    if cookie is None:
        said = f"This link was used before, or is older than {CODE_VALID_S / 60:.0f} minutes.  try: sanjaya page"
        return PlainTextResponse(said, 401)
    entered = RedirectResponse("/", 303, headers={"Cache-Control": "no-store"})
    entered.set_cookie(
        gateway.browsers.cookie, cookie, max_age=int(COOKIE_VALID_S), httponly=True, samesite="strict", path="/"
    )
    return entered
