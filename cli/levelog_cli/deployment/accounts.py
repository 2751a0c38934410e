"""The identities of an application as manifests: an account for each process, and roles with what it needs."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from levelog_base.errors import ConfigurationError
from levelog_cli.loading import LoadedApplication
from levelog_cli.servers.permissions import (
    NeededPermission,
    Permission,
    ordered,
    to_identify,
    to_read,
    to_write,
    undeclared,
)
from levelog_cli.wiring.roles import Role

_API: Final = "rbac.authorization.k8s.io"
_GIVES_RIGHTS: Final = f"""\
# The API takes roles and bindings only from those who have all rights in them, or who may `escalate` the role, or
# `bind` the one that a binding names. For bindings, put that name in and add:
# - apiGroups: ["{_API}"]
#   resources: ["clusterroles", "roles"]
#   resourceNames: ["NAME"]
#   verbs: ["bind"]
"""
_READS_SECRETS: Final = """\
# The operators read Secrets, and the API gives none without its values: these are hashed under the redaction key before
# anything is recorded. Limit them to some namespaces with --namespace.
"""
_MOST_NAME: Final = 200  # a DNS subdomain may have 253 characters; levelog's own part takes some


class _Identity(Struct, frozen=True, kw_only=True):
    """The account of one process."""

    name: str
    does: str
    needs: Sequence[NeededPermission] = ()


def roles_of(
    application: LoadedApplication, *, operator_namespace: str, namespaces: Sequence[str], is_single: bool = False
) -> str:
    """YAML documents for `kubectl apply -f -`, the same for the same operators.

    Service accounts are in `operator_namespace`. With `namespaces`, rights on namespaced objects are given only there.
    `is_single`: one account for one process that does all.
    Raises ConfigurationError for reconcile functions that do not say what they write.
    """
    refuse_undeclared(application)
    documents: list[str] = []
    identities = list(_identities(application, namespaces))
    if is_single:
        identities = [_together(application, identities)]
    for identity in identities:
        documents += _documents(identity, operator_namespace)
    return "---\n".join([_head(application, namespaces), *documents])


def refuse_undeclared(application: LoadedApplication) -> None:
    """Raises ConfigurationError naming the reconcile functions that do not say what they write."""
    if unknown := undeclared(application.program):
        names = ", ".join(handler.name for handler in unknown)
        raise ConfigurationError(
            f"what these functions write is not known: {names}; say it in each, by class and verbs: "
            f'@op.reconcile({unknown[0].view.name}, writes={{CLASS: ["apply", "delete", …]}})'
        )


def _identities(application: LoadedApplication, namespaces: Sequence[str]) -> Iterator[_Identity]:
    program = application.program
    prefix = f"levelog-{dns_name(application.name)}"
    yield _Identity(
        name=f"{prefix}-{Role.INGEST}",
        does="Watches what the operators read.",
        needs=[*to_identify(), *to_read(program.resources.values(), namespaces)],
    )
    yield _Identity(name=f"{prefix}-{Role.PROCESS}", does="Decides, and has no access to the cluster.")
    yield _Identity(
        name=f"{prefix}-{Role.ACTUATE}",
        does="Writes what was decided.",
        needs=[*to_identify(), *to_write(program, namespaces)],
    )


def _together(application: LoadedApplication, identities: Sequence[_Identity]) -> _Identity:
    return _Identity(
        name=f"levelog-{dns_name(application.name)}-run",
        does="Watches what the operators read, decides, and writes what was decided.",
        needs=list(dict.fromkeys(need for each in identities for need in each.needs)),
    )


def _head(application: LoadedApplication, namespaces: Sequence[str]) -> str:
    where = f"in {', '.join(namespaces)}" if namespaces else "in all namespaces"
    return f"# What the processes of {application.name} may do {where}: made by `levelog rbac`.\n"


def _documents(identity: _Identity, operator_namespace: str) -> Iterator[str]:
    token = "" if identity.needs else "automountServiceAccountToken: false\n"
    yield (
        f"# {identity.does}\napiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: {identity.name}\n"
        f"  namespace: {_quoted(operator_namespace)}\n{token}"
    )
    for namespace in sorted({need.permission.namespace for need in identity.needs}):
        kind = "Role" if namespace else "ClusterRole"
        inside = f"  namespace: {_quoted(namespace)}\n" if namespace else ""
        metadata = f"metadata:\n  name: {identity.name}\n{inside}"
        here = [need for need in identity.needs if need.permission.namespace == namespace]
        yield f"apiVersion: {_API}/v1\nkind: {kind}\n{metadata}rules:\n{''.join(_rules(here))}"
        yield (
            f"apiVersion: {_API}/v1\nkind: {kind}Binding\n{metadata}"
            f"roleRef:\n  apiGroup: {_API}\n  kind: {kind}\n  name: {identity.name}\n"
            f"subjects:\n- kind: ServiceAccount\n  name: {identity.name}\n  namespace: {_quoted(operator_namespace)}\n"
        )


def _rules(needs: Sequence[NeededPermission]) -> Iterator[str]:
    """A rule for each resource, with what it is for."""
    places = sorted({_place(need.permission) for need in needs})
    for place in places:
        group, resource, name = place
        here = [need for need in needs if _place(need.permission) == place]
        verbs = [permission.verb for permission in ordered({need.permission for need in here})]
        names = f"  resourceNames: [{_quoted(name)}]\n" if name else ""
        why = _READS_SECRETS if (group, resource) == ("", "secrets") and "list" in verbs else ""
        why = _GIVES_RIGHTS if group == _API and "create" in verbs else why
        yield (
            f"{why}{_reasons(here)}- apiGroups: [{_quoted(group)}]\n  resources: [{_quoted(resource)}]\n{names}"
            f"  verbs: [{', '.join(map(_quoted, verbs))}]\n"
        )


def _reasons(needs: Sequence[NeededPermission]) -> str:
    """A comment that names the functions and their intents."""
    functions = sorted({need.of for need in needs if need.intent})
    named = (f"{', '.join(sorted({n.intent for n in needs if n.of == name}))} by {name}" for name in functions)
    return f"# {'; '.join(named)}\n" if functions else ""


def _place(permission: Permission) -> tuple[str, str, str]:
    subresource = f"/{permission.subresource}" if permission.subresource else ""
    return permission.group, permission.resource + subresource, permission.name


def dns_name(text: str) -> str:
    """The text as part of the name of an object in a cluster."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:_MOST_NAME]


def _quoted(text: str) -> str:
    return json.dumps(text)
