"""Refuses what a browser asks for somebody else's page: whoever reaches the sandbox is its administrator."""

from collections.abc import Collection, Mapping

from levelog_base.wire.origins import is_of_a_page, strange_name
from levelog_sandbox.api.refusals import StatusError


def refuse_pages(headers: Mapping[str, str], names: Collection[str]) -> None:
    """Raise `StatusError` 403 for a request of a page, or under a name that somebody else may own."""
    if is_of_a_page(headers):
        raise StatusError(403, "Forbidden", "the sandbox answers no pages of a browser")
    if host := strange_name(headers, names):
        raise StatusError(
            403, "Forbidden", f"the sandbox is not {host}: reach it by its address, or start it with --name {host}"
        )
