"""Who may do what: everybody everything, less a list of denials; answers SelfSubjectAccessReview."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from levelog_sandbox import errors
from levelog_sandbox.routing import Target

Json = dict[str, Any]

USER: Final = "sandbox-user"


@dataclass(frozen=True, slots=True)
class Denial:
    """A verb that is refused on a resource (`plural` or `plural.group`); `*` stands for any."""

    verb: str
    resource: str
    namespace: str = "*"
    subresource: str = "*"

    def covers(self, verb: str, resource: str, namespace: str, subresource: str) -> bool:
        """Whether the denial applies to a request."""
        asked = (verb, resource, namespace, subresource)
        denied = (self.verb, self.resource, self.namespace, self.subresource)
        return all(mine in {"*", theirs} for mine, theirs in zip(denied, asked, strict=True))


class Access:
    """The deny list; may be changed while the sandbox runs."""

    def __init__(self, denials: Sequence[Denial] = ()) -> None:
        self.denials = list(denials)

    def is_allowed(self, verb: str, resource: str, namespace: str, subresource: str) -> bool:
        """Whether no denial covers a request; `resource` is `plural` or `plural.group`."""
        return not any(denial.covers(verb, resource, namespace, subresource) for denial in self.denials)

    def require(self, verb: str, target: Target) -> None:
        """Raises `StatusError` 403 naming verb and resource."""
        if not self.denials:
            return
        resource = target.resource
        verb = "patch" if verb == "apply" else verb
        if self.is_allowed(verb, resource.name, target.namespace, target.subresource):
            return
        where = f'in the namespace "{target.namespace}"' if target.namespace else "at the cluster scope"
        what = f"{resource.plural}/{target.subresource}" if target.subresource else resource.plural
        why = f'User "{USER}" cannot {verb} resource "{what}" in API group "{resource.group}" {where}'
        raise errors.forbidden(resource.group, resource.plural, target.name, why)

    def review(self, body: Json) -> Json:
        """The SelfSubjectAccessReview with its status."""
        asked: Mapping[str, str] = body.get("spec", {}).get("resourceAttributes") or {}
        resource = errors.qualified(asked.get("group", ""), asked.get("resource", ""))
        allowed = self.is_allowed(
            asked.get("verb", ""), resource, asked.get("namespace", ""), asked.get("subresource", "")
        )
        head = {"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "metadata": {}}
        return {**head, "spec": body.get("spec", {}), "status": {"allowed": allowed}}
