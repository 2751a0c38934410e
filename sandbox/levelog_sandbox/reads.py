"""Get and list: consistent pages of a collection, and the tokens with which they continue."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from levelog_sandbox import errors
from levelog_sandbox.resources import Resource
from levelog_sandbox.selectors import Matches, both, field_selector, label_selector
from levelog_sandbox.store import Store, Stored, in_etcd

Json = dict[str, Any]

TOO_OLD: Final = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


class Page(NamedTuple):
    """Objects of a list at one revision, the token for the rest, and how many those are (None: not known)."""

    objects: list[Stored]
    revision: int
    continue_token: str
    remaining: int | None


class Token(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a list goes on: after a key, at a revision (-1: at the current one)."""

    rv: int
    ns: str
    name: str

    def encode(self) -> str:
        """The token as it goes over the wire."""
        return urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str) -> "Token":
        """The token that a client sent back. Raises `StatusError` 400."""
        try:
            return msgspec.json.decode(urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=cls)
        except (ValueError, msgspec.DecodeError) as error:
            raise errors.bad_request(f"continue key is not valid: {error}") from error


def selection(resource: Resource, query: Mapping[str, str]) -> Matches | None:
    """The test that a request's selectors make together. Raises `StatusError` 400."""
    return both(
        label_selector(query.get("labelSelector", "")),
        field_selector(query.get("fieldSelector", ""), resource.name, resource.selectable),
    )


def list_page(store: Store, resource: Resource, namespace: str, query: Mapping[str, str]) -> Page:
    """One page of a list.

    Raises `StatusError` 400 for parameters that do not fit together, 410 for a revision that is compacted,
    504 for one that is not reached yet.
    """
    _check(query)
    matches = selection(resource, query)
    collection = store.collection(resource.storage)
    limit = number(query.get("limit", ""))
    after = ""
    revision = store.revision
    version = query.get("resourceVersion", "")
    if continue_text := query.get("continue", ""):
        token = Token.decode(continue_text)
        after = in_etcd((token.ns, token.name))
        if token.rv >= 0:
            revision = token.rv
        if revision < collection.compacted:
            raise errors.expired(TOO_OLD, Token(-1, token.ns, token.name).encode())
    elif version == "0":
        limit = 0  # served from the watch cache, which does not page
    elif version:
        asked = version_number(version)
        if asked > store.revision:
            raise too_large(asked, store.revision)
        if query.get("resourceVersionMatch") == "Exact":
            if asked < collection.compacted:
                raise errors.expired(f"The resourceVersion for the provided list is too old. ({asked})")
            revision = asked
    objects = collection.as_of(revision)
    chosen = [
        stored
        for stored in objects
        if (not namespace or stored.namespace == namespace)
        and in_etcd((stored.namespace, stored.name)) > after
        and (matches is None or matches(stored.body))
    ]
    if limit <= 0 or len(chosen) <= limit:
        return Page(chosen, revision, "", None)
    last = chosen[limit - 1]
    remaining = len(chosen) - limit if matches is None else None
    return Page(chosen[:limit], revision, Token(revision, last.namespace, last.name).encode(), remaining)


def list_metadata(resource: Resource, page: Page) -> Json:
    """A list's metadata; that of custom resources always has the token, though it be empty."""
    about: Json = {"resourceVersion": str(page.revision)}
    if resource.is_custom:
        about["continue"] = ""
    if page.continue_token:
        about["continue"] = page.continue_token
        if page.remaining is not None:
            about["remainingItemCount"] = page.remaining
    return about


def encode_list(resource: Resource, page: Page) -> bytes:
    """The list as JSON; items of core kinds come without apiVersion and kind, as the server sends them."""
    head = {"kind": resource.list_kind, "apiVersion": resource.api_version, "metadata": list_metadata(resource, page)}
    items = [stored.encoded_as(resource) for stored in page.objects]
    if not resource.is_custom:
        prefix = msgspec.json.encode({"apiVersion": resource.api_version, "kind": resource.kind})[:-1] + b","
        items = [b"{" + item[len(prefix) :] if item.startswith(prefix) else item for item in items]
    return b'%b,"items":[%b]}' % (msgspec.json.encode(head)[:-1], b",".join(items))


def _check(query: Mapping[str, str]) -> None:
    """Refuse list parameters that do not fit together. Raises `StatusError` 400, 422."""
    version, match = query.get("resourceVersion", ""), query.get("resourceVersionMatch", "")
    if query.get("continue") and version not in {"", "0"}:
        raise errors.bad_request("specifying resource version is not allowed when using continue")
    if "sendInitialEvents" in query:
        raise bad_options("sendInitialEvents", "sendInitialEvents is forbidden for list")
    if match and not version:
        raise bad_options(
            "resourceVersionMatch", "resourceVersionMatch is forbidden unless resourceVersion is provided"
        )
    if match not in {"", "Exact", "NotOlderThan"}:
        cause = errors.unsupported_value("resourceVersionMatch", f'"{match}"', ("Exact", "NotOlderThan", ""))
        raise errors.invalid("meta.k8s.io", "ListOptions", "", [cause])
    if match == "Exact" and version == "0":
        raise bad_options("resourceVersionMatch", 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"')


def version_number(text: str) -> int:
    """A resourceVersion that a client sent. Raises `StatusError` 400."""
    try:
        return int(text)
    except ValueError as error:
        raise errors.bad_request(f"invalid resource version: {not_a_version(text)}") from error


def not_a_version(text: str) -> str:
    """What is wrong with a resourceVersion that is no number."""
    return f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'


def check_reached(store: Store, version: str) -> None:
    """Raise `StatusError` 504 for a revision that is still to come."""
    if version and version_number(version) > store.revision:
        raise too_large(version_number(version), store.revision)


def too_large(asked: int, current: int) -> errors.StatusError:
    """504: a revision that is not reached yet."""
    details = {"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]}
    message = f"Timeout: Too large resource version: {asked}, current: {current}"
    return errors.StatusError(504, "Timeout", message, details={**details, "retryAfterSeconds": 1})


def number(text: str) -> int:
    """A number in a query; 0 when it is left out. Raises `StatusError` 400."""
    try:
        return int(text or "0")
    except ValueError as error:
        raise errors.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from error


def bad_options(field: str, why: str) -> errors.StatusError:
    """422: parameters of a list or watch that contradict one another."""
    cause = errors.Cause(field, "FieldValueForbidden", f"Forbidden: {why}")
    return errors.invalid("meta.k8s.io", "ListOptions", "", [cause])
