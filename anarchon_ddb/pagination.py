"""The pages of any boto3 paginator, from a saved token on.

The token is the operation's own, as botocore's paginator model names it: several values for some
operations. So a resumed run asks for the page after the last finished one, and none is read again.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import jmespath
from botocore.loaders import Loader

from anarchon_ddb.errors import AnarchonError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Token = dict[str, Any]
"""Arguments of the next call, such as ``{"ExclusiveStartKey": …}``; empty after the last page."""


def pages(
    client: Any, operation: str, arguments: Mapping[str, Any], start: Token | None
) -> Iterator[tuple[dict[str, Any], Token, int]]:
    """Yield each page with the token of the next one and the number of results on it.

    Parameters
    ----------
    client : boto3 client
        Of any service.
    operation : str
        A method that ``client.get_paginator`` knows, such as ``"scan"``.
    arguments : mapping
        The arguments of every call.
    start : dict or None
        A token of an earlier call; None for the first page.

    Raises
    ------
    AnarchonError
        If the operation has no paginator, or gives the same token twice.
    """
    if not client.can_paginate(operation):
        service = client.meta.service_model.service_name
        raise AnarchonError(f"{service} has no paginator for {operation!r}")
    config = _config(client, operation)
    method = getattr(client, operation)
    token = start
    while token is None or token:
        page = method(**{**arguments, **(token or {})})
        following = _next_token(page, config)
        if following and following == token:
            raise AnarchonError(f"{operation} gave the same token twice: it would never end")
        yield page, following, _count(page, config)
        token = following


def _config(client: Any, operation: str) -> dict[str, Any]:
    name = client.meta.method_to_api_mapping[operation]
    model = client.meta.service_model
    # The model's directory has the name of the service, not of its endpoint.
    config: dict[str, Any] = _paginators(model.service_name, model.api_version)[name]
    return config


@cache
def _paginators(service: str, api_version: str) -> dict[str, Any]:
    model: dict[str, Any] = Loader().load_service_model(service, "paginators-1", api_version)
    paginators: dict[str, Any] = model["pagination"]
    return paginators


def _next_token(page: dict[str, Any], config: Mapping[str, Any]) -> Token:
    more = config.get("more_results")
    if more is not None and not jmespath.search(more, page):
        return {}
    found = {
        name: jmespath.search(expression, page)
        for name, expression in zip(
            _listed(config["input_token"]), _listed(config["output_token"]), strict=True
        )
    }
    return {name: value for name, value in found.items() if value}


def _count(page: dict[str, Any], config: Mapping[str, Any]) -> int:
    """Return how many results a page has: of its first list, if it has several."""
    results = jmespath.search(_listed(config.get("result_key", "@"))[0], page)
    return len(results) if isinstance(results, list) else 0


def _listed(value: str | list[str]) -> list[str]:
    return value if isinstance(value, list) else [value]
