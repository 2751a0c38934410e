"""Objects of core kinds, and strategic merge patches that kube-apiserver takes, or refuses for their form."""

from typing import Any

from hypothesis import strategies as st

Json = dict[str, Any]
Draw = st.DrawFn

NAMES: tuple[str, ...] = ("a", "b", "c", "d")
UIDS = {name: f"{name * 8}-{name * 4}-{name * 4}-{name * 4}-{name * 12}" for name in NAMES}
# A list by the field that its patches merge by, what its items may be, and how each is completed to be valid.
KEYED: dict[str, tuple[str, dict[str, st.SearchStrategy[Any]]]] = {
    "containers": ("name", {}),
    "env": ("name", {"value": st.sampled_from(["1", "2"])}),
    "ports": ("containerPort", {"name": st.sampled_from(["x", "y"])}),
    "hostAliases": ("ip", {"hostnames": st.lists(st.sampled_from(NAMES), min_size=1, max_size=2, unique=True)}),
    "imagePullSecrets": ("name", {}),
    "ownerReferences": ("uid", {"blockOwnerDeletion": st.booleans()}),
    "service ports": ("port", {"targetPort": st.sampled_from([80, "http"])}),
}
POD_LABELS = {"app": "x"}


def key_of(kind: str, name: str) -> Any:
    """What an item named so has for its merge key."""
    number = NAMES.index(name)
    match kind:
        case "ports" | "service ports":
            return 80 + number
        case "hostAliases":
            return f"10.0.0.{number}"
        case "ownerReferences":
            return UIDS[name]
        case _:
            return name


@st.composite
def item(draw: Draw, kind: str, name: str, *, is_patch: bool) -> Json:
    """One item of a list by key; in a patch with nulls and directives of its own."""
    key, fields = KEYED[kind]
    made: Json = {key: key_of(kind, name)}
    match kind:
        case "containers":
            made |= {"image": draw(st.sampled_from(["x:1", "y:2"]))}
            made |= draw(container_parts(is_patch=is_patch))
        case "ownerReferences":
            made |= {"apiVersion": "v1", "kind": "ConfigMap", "name": name}
        case "service ports":
            made |= {"name": f"p-{name}"}
        case "env":
            fields = fields if not is_patch else {"value": fields["value"] | st.none()}
        case "hostAliases":
            made |= {"hostnames": ["always"]}
        case _:
            pass
    return made | draw(st.fixed_dictionaries({}, optional=fields))


@st.composite
def keyed_list(draw: Draw, kind: str, *, least: int = 0) -> list[Json]:
    """A list as an object has it. Ports have names of their own."""
    names = draw(st.lists(st.sampled_from(NAMES[:3]), min_size=least, max_size=3, unique=True))
    items = [draw(item(kind, name, is_patch=False)) for name in names]
    return [{**each, "name": f"n-{each['containerPort']}"} for each in items] if kind == "ports" else items


@st.composite
def keyed_patch(draw: Draw, field: str, kind: str = "", *, kept: str = "") -> Json:
    """What a patch may say about a list by key: items, deletions, a replacement, an order; `kept` outlasts it."""
    kind = kind or field
    key = KEYED[kind][0]
    names = draw(st.lists(st.sampled_from(NAMES), max_size=3, unique=True))
    gone = {name for name in names if name != kept and draw(st.integers(0, 3)) == 0}
    is_replaced = draw(st.integers(0, 5)) == 0
    if is_replaced and kept and kept not in names:
        names.append(kept)
    items: list[Json] = []
    for name in names:
        made = {key: key_of(kind, name), "$patch": "delete"} if name in gone else draw(item(kind, name, is_patch=True))
        if kind == "ports" and name not in gone:
            made["name"] = f"n-{made['containerPort']}"
        items.append(made)
    patch: Json = {field: items}
    if draw(st.booleans()):
        more = [name for name in NAMES if name not in names and draw(st.booleans())]
        order = [name for name in names if name not in gone]
        for name in more:
            order.insert(draw(st.integers(0, len(order))), name)
        if draw(st.integers(0, 7)) == 0:
            order = draw(st.permutations(order))  # refused, where it contradicts the items
        patch[f"$setElementOrder/{field}"] = [{key: key_of(kind, name)} for name in order]
    if is_replaced:
        items.insert(draw(st.integers(0, len(items))), {"$patch": "replace"})
    if not kept and draw(st.integers(0, 9)) == 0:
        patch[field] = None
    return {f: v for f, v in patch.items() if f != field or v != [] or draw(st.booleans())}


@st.composite
def scalar_list_patch(draw: Draw, field: str) -> Json:
    """What a patch may say about a list of names that is merged: items, deletions, an order."""
    values = [f"example.com/{name}" for name in NAMES]
    patch: Json = draw(
        st.fixed_dictionaries(
            {},
            optional={
                field: st.lists(st.sampled_from(values), max_size=3, unique=True) | st.none(),
                f"$deleteFromPrimitiveList/{field}": st.lists(st.sampled_from(values), max_size=2),
            },
        )
    )
    said = patch.get(field) or []
    # An item that is both added and deleted comes and goes in an order that the server draws by lot.
    removed = f"$deleteFromPrimitiveList/{field}"
    if removed in patch:
        patch[removed] = [each for each in patch[removed] if each not in said and patch.get(field, said) is not None]
    if draw(st.booleans()) and patch.get(field, said) is not None:
        order = list(said)
        for each in values:
            if each not in said and draw(st.booleans()):
                order.insert(draw(st.integers(0, len(order))), each)
        patch[f"$setElementOrder/{field}"] = order
    return patch


def map_patch(keys: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """What a patch may say about a map: entries, nulls, a replacement, the keys to retain."""
    entries = st.dictionaries(st.sampled_from(keys), values | st.none(), max_size=3)
    replaced = entries.map(lambda each: {"$patch": "replace", **each})
    retained = entries.flatmap(
        lambda each: st.lists(st.sampled_from(keys), max_size=2).map(
            lambda more: {"$retainKeys": sorted({*more, *(k for k, v in each.items() if v is not None)}), **each}
        )
    )
    return st.one_of(entries, entries, entries, replaced, retained, st.just({"$patch": "delete"}), st.none())


@st.composite
def container_parts(draw: Draw, *, is_patch: bool) -> Json:
    """Fields of a container: lists by key, an atomic list, a map."""
    atomic = st.lists(st.sampled_from(["-v", "-x"]), min_size=1, max_size=2)
    if not is_patch:
        fields = {"env": keyed_list("env"), "ports": keyed_list("ports"), "args": atomic}
        return draw(st.fixed_dictionaries({}, optional=fields))
    made: Json = {}
    for field in ("env", "ports"):
        if draw(st.booleans()):
            made |= draw(keyed_patch(field))
    return made | draw(st.fixed_dictionaries({}, optional={"args": atomic | st.none()}))


@st.composite
def metadata_patch(draw: Draw) -> Json:
    made: Json = {}
    if draw(st.booleans()):
        made["annotations"] = draw(map_patch("xyz", st.sampled_from("12")))
    if draw(st.integers(0, 2)) == 0:
        made |= draw(scalar_list_patch("finalizers"))
    if draw(st.integers(0, 2)) == 0:
        made |= draw(keyed_patch("ownerReferences"))
    return made


@st.composite
def pod_spec_patch(draw: Draw) -> Json:
    made: Json = draw(keyed_patch("containers", kept="a"))
    for field in ("hostAliases", "imagePullSecrets"):
        if draw(st.integers(0, 2)) == 0:
            made |= draw(keyed_patch(field))
    if draw(st.integers(0, 2)) == 0:
        made["nodeSelector"] = draw(map_patch("xyz", st.sampled_from("12")))
    return made


strategies = st.sampled_from(
    [
        {"type": "Recreate", "$retainKeys": ["type"]},
        {"type": "Recreate", "rollingUpdate": None},
        {"rollingUpdate": {"maxSurge": 2}, "$retainKeys": ["rollingUpdate"]},
        {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "10%", "$retainKeys": ["maxSurge"]}},
        {"$patch": "replace", "type": "Recreate"},
        None,
    ]
)


@st.composite
def deployment(draw: Draw) -> Json:
    """A deployment as it is created; one of its containers is always `a`."""
    containers = [each for each in draw(keyed_list("containers")) if each["name"] != "a"]
    containers.insert(draw(st.integers(0, len(containers))), draw(item("containers", "a", is_patch=False)))
    for each in containers:
        each["ports"] = [{**port, "name": f"n-{port['containerPort']}"} for port in each.get("ports", ())]
    spec = {"containers": containers, "hostAliases": draw(keyed_list("hostAliases"))}
    template = {"metadata": {"labels": POD_LABELS}, "spec": spec}
    owners = draw(keyed_list("ownerReferences"))
    return {
        "metadata": {"name": "", "ownerReferences": owners},
        "spec": {"selector": {"matchLabels": POD_LABELS}, "template": template},
    }


@st.composite
def deployment_patch(draw: Draw) -> Json:
    spec: Json = {}
    if draw(st.integers(0, 3)):
        spec["template"] = {"spec": draw(pod_spec_patch())}
    if draw(st.integers(0, 2)) == 0:
        spec["strategy"] = draw(strategies)
    spec |= draw(st.fixed_dictionaries({}, optional={"replicas": st.integers(0, 2) | st.none()}))
    return {"metadata": draw(metadata_patch()), "spec": spec}


@st.composite
def service(draw: Draw) -> Json:
    ports = [each for each in draw(keyed_list("service ports")) if each["port"] != key_of("service ports", "a")]
    ports.insert(draw(st.integers(0, len(ports))), draw(item("service ports", "a", is_patch=False)))
    # Without an address: the server has 254.
    return {"metadata": {"name": ""}, "spec": {"clusterIP": "None", "selector": POD_LABELS, "ports": ports}}


@st.composite
def service_patch(draw: Draw) -> Json:
    spec = draw(keyed_patch("ports", "service ports", kept="a"))
    if draw(st.booleans()):
        spec["selector"] = draw(map_patch("xyz", st.sampled_from("12")))
    return {"metadata": draw(metadata_patch()), "spec": spec}


config_map = st.fixed_dictionaries(
    {"metadata": st.just({"name": ""}), "data": st.dictionaries(st.sampled_from("xyz"), st.sampled_from("12"))}
)
config_map_patch = st.fixed_dictionaries(
    {"metadata": metadata_patch(), "data": map_patch("xyz", st.sampled_from("12"))}
)

STORIES: dict[str, st.SearchStrategy[tuple[Json, list[Json]]]] = {
    "apis/apps/v1 deployments": st.tuples(deployment(), st.lists(deployment_patch(), min_size=1, max_size=4)),
    "api/v1 services": st.tuples(service(), st.lists(service_patch(), min_size=1, max_size=4)),
    "api/v1 configmaps": st.tuples(config_map, st.lists(config_map_patch, min_size=1, max_size=4)),
}
"""By root and plural: an object, and patches to be made of it one after the other."""
