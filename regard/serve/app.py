"""The application: all routes, and what is said of wrong requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from starlette.exceptions import HTTPException

from regard.core import VERSION
from regard.core.errors import RegardError, RequestError, UnknownName
from regard.serve import encoders, looking, openai, ours, playground
from regard.serve.docs import page
from regard.serve.gate import (
    GONE,
    ClientGone,
    RequestGate,
    ServerState,
    as_request_error,
    error_body,
    error_headers,
)
from regard.serve.models import ServedModels
from regard.serve.options import ServeOptions

ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"description": "The request is wrong; the message says why."},
    401: {"description": "The key is missing or wrong."},
    403: {"description": "Another site asks, and the server has no key."},
    404: {"description": "There is no such model."},
    408: {"description": "The request took too long to arrive."},
    413: {"description": "The request is too large."},
    429: {"description": "The queue is full; try again after Retry-After seconds."},
    503: {"description": "The server is shutting down."},
    504: {"description": "The deadline has passed."},
}


def create_app(models: ServedModels, options: ServeOptions) -> RequestGate:
    """Returns the application, to be run by any ASGI server."""
    state = ServerState(models, options)
    app = FastAPI(
        title="regard serve",
        version=VERSION,
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        responses=ERRORS,
    )
    app.state.server = state
    for module in (openai, encoders, ours, looking, playground):
        app.include_router(module.router)
    add_own_routes(app, state)
    app.add_exception_handler(RequestValidationError, refuse_body)
    app.add_exception_handler(HTTPException, refuse_route)
    app.add_exception_handler(RegardError, refuse)
    app.add_exception_handler(ClientGone, forget)
    app.add_exception_handler(Exception, refuse)
    app.openapi_schema = without_422(app.openapi())
    return RequestGate(app, state)


def add_own_routes(app: FastAPI, state: ServerState) -> None:
    tags: list[Any] = ["Server"]

    @app.get("/health", tags=tags, summary="Whether the process lives")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/ready", tags=tags, summary="Whether requests are accepted")
    async def ready(response: Response) -> dict[str, str]:
        response.status_code = 503 if state.closing else 200
        return {"status": "closing" if state.closing else "ready"}

    @app.get("/metrics", tags=tags, summary="Figures for Prometheus", response_class=Response)
    async def metrics() -> Response:
        return Response(state.metrics.text(), media_type="text/plain; version=0.0.4")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(page(app.openapi()), headers=playground.HEADERS)


def without_422(description: dict[str, Any]) -> dict[str, Any]:
    """Wrong bodies are answered with 400 and OpenAI's shape, not with FastAPI's 422."""
    for methods in description["paths"].values():
        for route in methods.values():
            route["responses"].pop("422", None)
    for name in ("HTTPValidationError", "ValidationError"):
        description.get("components", {}).get("schemas", {}).pop(name, None)
    return description


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    state: ServerState = app.state.server
    sweeping = asyncio.create_task(sweep(state))
    try:
        yield
    finally:
        sweeping.cancel()
        await asyncio.to_thread(state.models.stop)


async def sweep(state: ServerState) -> None:
    """Unloads models that nobody uses."""
    while state.options.keep:
        await asyncio.sleep(min(1.0, state.options.keep / 2))
        for model in state.models.models.values():
            model.unload_idle()


# -- refusals


async def refuse(request: Request, error: Exception) -> JSONResponse:
    refusal = as_request_error(error, request.app.state.server)
    return JSONResponse(error_body(refusal), refusal.status, headers=error_headers(refusal))


async def forget(request: Request, error: Exception) -> Response:
    """Nobody reads what is answered to a client that has gone."""
    return Response(status_code=GONE)


async def refuse_route(request: Request, error: Exception) -> JSONResponse:
    """There is no such route, or it has another method."""
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        paths = [path for path in request.app.openapi()["paths"] if "{" not in path]
        message = str(UnknownName("route", request.url.path[:100], paths))
    elif error.status_code == 405:
        message = f"{request.url.path[:100]} does not answer {request.method}"
    elif error.status_code == 400:  # numbers or brackets beyond what the parser of JSON takes
        message = "the body is not valid JSON: it is nested too deeply, or a number is too long"
    else:
        message = str(error.detail)
    refusal = RequestError(message, error.status_code)
    headers = error_headers(refusal) | dict(error.headers or {})
    return JSONResponse(error_body(refusal), refusal.status, headers=headers)


def is_json(request: Request) -> bool:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind == "application/json" or kind.endswith("+json")


async def refuse_body(request: Request, error: Exception) -> JSONResponse:
    """The body is no JSON, or a field is missing, unknown or of a wrong type."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    place = [str(part) for part in first["loc"] if part not in ("body", "query", "path")]
    where, kind = ".".join(place), first["type"]
    if kind == "json_invalid":
        message = f"the body is not valid JSON: {first.get('ctx', {}).get('error', '')}"
        where = ""  # it counts characters
    elif not where and not is_json(request):
        message = "the body is not said to be JSON; send it with 'content-type: application/json'"
    elif kind == "extra_forbidden":
        message = f"{where} is not a field of {request.url.path}; leave it out"
    elif kind == "missing":
        message = f"{where or 'the body'} is missing"
    else:
        message = f"{where or 'the body'}: {first['msg']}"
    return await refuse(request, RequestError(message, 400, kind, where or None))
