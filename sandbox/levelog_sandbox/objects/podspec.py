"""Pod specs in pods and workload templates: defaults that depend on other fields, and validation."""

from typing import Any, Final

from levelog_sandbox.api import refusals
from levelog_sandbox.api.refusals import RefusalCause

Json = dict[str, Any]

# Origin: the admission plugins DefaultTolerationSeconds and Priority, which every kube-apiserver enables.
ADMITTED: Final[Json] = {
    "priority": 0,
    "preemptionPolicy": "PreemptLowerPriority",
    "tolerations": [
        {
            "key": f"node.kubernetes.io/{condition}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": 300,
        }
        for condition in ("not-ready", "unreachable")
    ],
}
UPDATE_RULE: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def filled(spec: Json) -> Json:
    """A pod spec with the pull policy of each container."""
    known: Json = {
        field: [{"imagePullPolicy": _pull_policy(container), **container} for container in spec[field]]
        for field in ("containers", "initContainers")
        if field in spec
    }
    return {**spec, **known}


def _pull_policy(container: Json) -> str:
    """Origin: SetDefaults_Container; images by digest or with a tag other than latest are not pulled again."""
    image = container.get("image", "")
    _, _, tag = image.rpartition("/")[2].partition(":")
    return "IfNotPresent" if "@" in image or tag not in {"", "latest"} else "Always"


def faults(spec: Json, path: str) -> list[RefusalCause]:
    """The faults of a pod spec beyond its schema, which names a missing list of containers itself."""
    if "containers" not in spec:
        return []
    if not spec["containers"]:
        return [refusals.required(f"{path}.containers")]
    found: list[RefusalCause] = []
    for index, container in enumerate(spec["containers"]):
        if container.get("name") == "":
            found.append(refusals.required(f"{path}.containers[{index}].name"))
        if not container.get("image"):
            found.append(refusals.required(f"{path}.containers[{index}].image"))
    return found


def update_faults(before: Json, after: Json) -> list[RefusalCause]:
    """Changes of fields that may not change once a pod is there."""
    if _fixed_part(before) == _fixed_part(after):
        return []
    return [RefusalCause("spec", "FieldValueForbidden", f"Forbidden: {UPDATE_RULE}")]


def _fixed_part(spec: Json) -> Json:
    free = {"activeDeadlineSeconds", "tolerations", "nodeName"}
    fixed = {key: value for key, value in spec.items() if key not in free}
    for field in ("containers", "initContainers"):
        if field in fixed:
            fixed[field] = [
                {key: value for key, value in container.items() if key not in {"image", "imagePullPolicy"}}
                for container in fixed[field]
            ]
    return fixed
