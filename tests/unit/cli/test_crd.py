"""`levelog crd`: definitions that the classes say, and what a change of them would break."""

import ast
import json
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest
import yaml
from msgspec import Meta

from levelog import CEL, External, Resource, Struct
from levelog.resources import ExternalMeta
from levelog_base.errors import ConfigurationError, OperatorError
from levelog_base.wire.manifests import as_yaml
from levelog_cli.crds.breaking import breaks
from levelog_cli.crds.definitions import definitions_of
from levelog_cli.crds.earlier import compare, in_file
from levelog_cli.crds.importing import source_of
from levelog_cli.crds.losses import losses
from levelog_cli.loading import load_classes
from levelog_cli.settings import Settings
from rigs.run.examples import short_or_whole

ROOT = Path(__file__).parents[3]
BUCKETS = ROOT / "tests/rigs/buckets.py"


class Tree(Struct):
    branches: list["Tree"] = []  # noqa: RUF012 - msgspec copies defaults


class Named(Struct):
    name: str = ""


class Tagged(Struct, tag="tagged"):
    name: str


@dataclass
class Size:
    width: int = 1


def resource(*fields: Any, **options: Any) -> type[Resource]:
    """A class of Webs whose spec has these fields, as `msgspec.defstruct` takes them."""
    Spec: Any = msgspec.defstruct("Spec", fields, bases=(Struct,), kw_only=True)  # noqa: N806
    options = {"group": "example.com", "version": "v1", "plural": "webs"} | options

    class Web(Resource, **options):
        spec: Spec  # pyright: ignore[reportInvalidTypeForm]

    return Web


def definition(*fields: Any, **options: Any) -> dict[str, Any]:
    [made] = definitions_of([resource(*fields, **options)])
    return made


def spec_of(*fields: Any) -> Any:
    schema = definition(*fields)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema["properties"]["spec"]


def test_a_definition_has_everything_that_its_classes_say() -> None:
    assert as_yaml(definitions_of(load_classes([BUCKETS]))) == BUCKETS.with_suffix(".yaml").read_text()


@pytest.mark.parametrize("name", ["domains", "previews", "releases", "renders", "sites"])
def test_the_definition_of_an_example_is_the_one_of_its_classes(name: str) -> None:
    folder = ROOT / "examples" / name
    made = as_yaml(definitions_of(load_classes([folder / f"{name}.py"])))
    assert (folder / "crd.yaml").read_text() == made, f"run `levelog crd examples/{name}/{name}.py`"


@pytest.mark.parametrize(
    ("hint", "why"),
    [
        (Tree, "spec.field.branches contains Tree, which it is part of"),
        (Tagged, "spec.field is Tagged, which has a tag"),
        (Size, "spec.field is Size, of which no schema is made: use a levelog.Struct"),
        (Decimal, "spec.field is Decimal, of which no schema is made"),
        (int | list[int], "spec.field may be of several types"),
        (Annotated[int, Meta(ge=1)] | str, "spec.field may be of several types"),
        (Literal["a", 1], "spec.field may be a string or an integer"),
        (Literal["a"] | None, "spec.field is one of a few values or None"),
        (list[Literal["a"] | None], "spec.field is one of a few values or None"),
        (dict[int, str], "spec.field has keys that are no strings"),
        (tuple[int, str], "spec.field is a tuple of several types"),
        (Annotated[int | str, Meta(min_length=1)], "spec.field has a length, and is of several types"),
    ],
    ids=str,
)
def test_what_has_no_structural_schema_is_named(hint: Any, why: str) -> None:
    with pytest.raises(OperatorError) as raised:
        spec_of(("field", hint))
    assert str(raised.value).startswith(f"class Web: {why}")


def test_a_default_that_the_server_would_refuse_is_refused() -> None:
    with pytest.raises(OperatorError, match=r"class Web: spec\.least has the default 0, which it may not have"):
        spec_of(("least", Annotated[int, Meta(ge=1)], 0))


def test_none_as_a_default_is_an_absent_field_and_otherwise_a_value() -> None:
    spec = spec_of(("absent", int | None, None), ("value", int | None), ("other", int | None, 1))
    assert spec == {
        "type": "object",
        "required": ["value"],
        "properties": {
            "absent": {"type": "integer"},
            "value": {"type": "integer", "nullable": True},
            "other": {"type": "integer", "nullable": True, "default": 1},
        },
    }


def test_a_status_is_not_required_as_no_new_object_has_one() -> None:
    class Web(Resource, group="example.com", plural="webs"):
        status: Named

    [made] = definitions_of([Web])
    [version] = made["spec"]["versions"]
    assert version["subresources"] == {"status": {}}
    assert version["schema"]["openAPIV3Schema"] == {
        "type": "object",
        "properties": {"status": {"type": "object", "properties": {"name": {"type": "string"}}}},
    }


def test_rules_of_a_base_class_hold_too_and_stand_in_their_order() -> None:
    @CEL("self.a > 0")
    class Base(Struct):
        a: int

    @CEL("self.b > 1")
    @CEL("self.b > 2")
    class Derived(Base):
        b: int

    found = spec_of(("base", Base), ("derived", Derived))["properties"]
    rules = {name: [rule["rule"] for rule in below["x-kubernetes-validations"]] for name, below in found.items()}
    assert rules == {"base": ["self.a > 0"], "derived": ["self.b > 1", "self.b > 2", "self.a > 0"]}


@pytest.mark.parametrize("group", ["", "apps", "networking.k8s.io", "k8s.io", "gateway.networking.k8s.io"])
def test_what_kubernetes_defines_gets_no_definition(group: str) -> None:
    class Branch(External, plural="branches"):
        pass

    with pytest.raises(OperatorError, match="no class is of a custom resource"):
        definitions_of([resource(group=group), resource(crd=False), Branch])


def test_a_group_of_kubernetes_is_defined_by_a_class_that_says_so() -> None:
    approval = {"api-approved.kubernetes.io": "https://github.com/kubernetes/enhancements/pull/1"}
    made = definition(group="networking.k8s.io", crd=True, annotations=approval)
    assert made["metadata"] == {"name": "webs.networking.k8s.io", "annotations": approval}


def test_an_option_says_what_a_class_does_not() -> None:
    column = {"type": "string", "jsonPath": ".status.gone", "description": "Nobody knows."}
    scale = {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}
    [version] = definition(
        ("size", Any),
        columns={"Gone": column, "Size": "spec.size"},
        scale=scale,
        status_subresource=True,
        selectable_fields=["spec.size"],
        deprecated=True,
        extra_json_schema={"x-kubernetes-preserve-unknown-fields": True},
    )["spec"]["versions"]
    assert version["additionalPrinterColumns"] == [
        {"name": "Gone"} | column,
        {"name": "Size", "type": "string", "jsonPath": ".spec.size"},
    ]
    assert version["subresources"] == {"status": {}, "scale": scale}
    assert version["selectableFields"] == [{"jsonPath": ".spec.size"}]
    assert (version["deprecated"], version.get("deprecationWarning")) == (True, None)
    assert version["schema"]["openAPIV3Schema"]["x-kubernetes-preserve-unknown-fields"] is True


@pytest.mark.parametrize(
    ("versions", "why"),
    [
        ([{}, {}], "Web and Web both say what webs.example.com is in version v1: put crd=False"),
        ([{}, {"version": "v2"}], "webs.example.com has the versions v1, v2: say storage=True"),
        ([{"storage": True}, {"version": "v2", "storage": True}], "webs.example.com has the versions v1, v2: say stor"),
        ([{"storage": True}, {"version": "v2", "kind": "Net"}], "class Web: webs.example.com is a Web, Namespaced"),
        ([{"storage": True}, {"version": "v2", "short_names": ["w"]}], "class Web: names are of all versions"),
        ([{"columns": {"Size": "spec.sise"}}], "class Web: the column Size shows spec.sise, and there is no sise"),
        ([{"scale": ["spec.size", "spec.name"]}], "class Web: scale is the paths of two integers"),
        ([{"scale": ["spec.size"]}], "class Web: scale is the paths of two integers"),
    ],
    ids=str,
)
def test_classes_that_do_not_fit_together_are_named(versions: list[dict[str, Any]], why: str) -> None:
    with pytest.raises(OperatorError) as raised:
        definitions_of([resource(("size", int, 1), ("name", str, ""), **options) for options in versions])
    assert str(raised.value).startswith(why)


def test_an_option_of_another_type_is_refused_where_the_class_is_made() -> None:
    with pytest.raises(OperatorError, match=r"class Web: Expected `array`, got `str` - at `\$.short_names`"):
        resource(short_names="wb")
    with pytest.raises(OperatorError, match="class Branch: columns= is for classes of the Kubernetes API"):
        ExternalMeta("Branch", (External,), {}, plural="branches", columns={"Name": "name"})


OLD = ("size", Annotated[int, Meta(ge=1, le=9)], 1)


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        (OLD, OLD, []),
        (OLD, ("size", Annotated[int, Meta(ge=0, le=10)], 2), []),
        (OLD, ("size", int | None, 2), []),
        (OLD, ("size", Any, 2), []),
        (OLD, ("size", Annotated[float, Meta(ge=1, le=9)], 2), []),
        (("size", int, 1), ("size", int | str, 2), []),
        (OLD, ("size", str, ""), ["spec.size: was integer, is string"]),
        (OLD, ("size", Annotated[int, Meta(ge=2, le=9)], 2), ["spec.size: minimum is 2, was 1"]),
        (OLD, ("size", Annotated[int, Meta(ge=1, lt=9)], 2), ["spec.size: exclusiveMaximum came"]),
        (("size", int, 1), OLD, ["spec.size: minimum is 1", "spec.size: maximum is 9"]),
        (OLD, ("other", int, 1), ["spec.size: is gone, and with it what objects hold there"]),
        (OLD, ("size", Annotated[int, Meta(ge=1, le=9)]), ["spec.size: is required now, and has no default"]),
        (("size", Any), ("size", int), ["spec.size: was anything, is integer"]),
        (("size", int | None), ("size", int), ["spec.size: may not be null any more"]),
        (("size", int, 1), ("size", Annotated[int, Meta(extra_json_schema={"default": 1})]), []),
        (("mode", Literal["a", "b"]), ("mode", Literal["a"]), ["spec.mode: may not be b any more"]),
        (("mode", Literal["a"]), ("mode", Literal["a", "b"]), []),
        (("mode", Literal["a"]), ("mode", str), []),
        (("mode", str), ("mode", Literal["a"]), ["spec.mode: is one of a few now"]),
        (("name", str), ("name", Annotated[str, Meta(pattern="a")]), ["spec.name: pattern is a"]),
        (
            ("name", str),
            ("name", Annotated[str, CEL("self != ''")]),
            ["spec.name: has a rule that it had not: self != ''"],
        ),
        (("name", Annotated[str, CEL("self != ''")]), ("name", str), []),
        (("names", list[str]), ("names", set[str]), ["spec.names: x-kubernetes-list-type is set"]),
        (("names", list[int]), ("names", list[str]), ["spec.names[]: was integer, is string"]),
        (("names", dict[str, int]), ("names", dict[str, str]), ["spec.names.*: was integer, is string"]),
        (("names", dict[str, int]), ("names", Named), ["spec.names: loses keys that it does not name"]),
        (("names", dict[str, Any]), ("names", Named), ["spec.names: loses fields that it does not name"]),
        (("names", Named), ("names", dict[str, str]), []),
        (("names", Named), ("names", dict[str, int]), ["spec.names.name: was string, is integer"]),
        (("names", Named), ("names", dict[str, Any]), []),
    ],
    ids=str,
)
def test_a_change_says_what_it_breaks(old: Any, new: Any, lines: list[str]) -> None:
    assert list(breaks(definition(old), definition(new))) == [f"v1 {line}" for line in lines]


def test_a_resource_with_other_names_or_another_scope_is_another_one() -> None:
    assert list(breaks(definition(), definition(kind="Net", scope="Cluster"))) == [
        "scope: was Namespaced, is Cluster",
        "names.singular: was web, is net",
        "names.kind: was Web, is Net",
        "names.listKind: was WebList, is NetList",
    ]


def test_versions_in_which_objects_are_stored_stay_and_are_read_as_the_new_one() -> None:
    one, two = resource(("size", int)), resource(("size", str), version="v2", storage=True)
    [both] = definitions_of([one, two])
    assert list(breaks(definition(("size", int)), both)) == ["v1 read as v2 spec.size: was integer, is string"]
    later = definition(("size", str), version="v2")
    assert list(breaks(both, later)) == []
    gone = "v1: objects are stored in this version, and it is gone"
    assert list(breaks(both | {"status": {"storedVersions": ["v1", "v2"]}}, later)) == [gone]


async def test_a_file_from_before_is_compared_by_the_names_of_its_definitions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "crd.yaml"
    webs, nets = definition(OLD), definition(plural="nets", kind="Net")
    file.write_text("\n---\n".join(map(yaml.safe_dump, [{"kind": "Namespace"}, webs, nets])))
    assert not await compare(Settings(), [webs], file)
    assert capsys.readouterr().out == (
        "webs.example.com: breaks nothing\nnets.example.com: no class defines it any more\n"
    )
    assert not await compare(Settings(), [definition(("size", str, "")), nets], file)
    assert capsys.readouterr().out.splitlines() == [
        "nets.example.com: breaks nothing",
        "webs.example.com v1 spec.size: was integer, is string",
    ]
    file.write_text(yaml.safe_dump(webs))
    assert await compare(Settings(), [webs, nets], file)
    assert capsys.readouterr().out == "webs.example.com: breaks nothing\nnets.example.com: is new\n"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "crd.yaml cannot be read: No such file or directory$"),
        ("a: [", "crd.yaml, line 2: while parsing a flow node: did not find expected node content"),
        ("kind: Namespace", "crd.yaml holds no CustomResourceDefinition"),
        ("kind: CustomResourceDefinition", "cannot be read from .*crd.yaml: .*metadata"),
        (
            "apiVersion: apiextensions.k8s.io/v1beta1\nkind: CustomResourceDefinition",
            "cannot be read from .*crd.yaml: apiextensions.k8s.io/v1beta1 is not apiextensions.k8s.io/v1",
        ),
    ],
)
def test_a_file_that_holds_no_definitions_is_named(tmp_path: Path, text: str | None, why: str) -> None:
    if text is not None:
        (tmp_path / "crd.yaml").write_text(text)
    with pytest.raises(ConfigurationError, match=why):
        in_file(tmp_path / "crd.yaml")


def test_whatever_is_put_into_a_definition_it_is_refused_or_taken(tmp_path: Path) -> None:
    file, whole = tmp_path / "crd.yaml", yaml.safe_load(BUCKETS.with_suffix(".yaml").read_text())
    whole["metadata"]["labels"] = {"a": "b"}
    whole["spec"]["conversion"] = {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"]}}
    wrongs: tuple[object, ...] = (None, 0, "0", True, [], [None], {}, {"a": 1})
    for number, (*path, last) in enumerate(_paths(whole)):
        for wrong in short_or_whole(wrongs[number % 4 :: 4], wrongs):
            damaged = deepcopy(whole)
            reduce(lambda place, step: place[step], path, damaged)[last] = wrong
            file.write_text(json.dumps(damaged))
            try:
                found = in_file(file)
            except ConfigurationError:
                continue
            source_of(found)
            for definition in found.values():
                list(breaks(definition, whole))
                list(breaks(whole, definition))
                list(losses(definition))


def _paths(value: Any) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, below in items:
        yield (step,)
        yield from ((step, *path) for path in _paths(below))


def test_fields_of_any_type_may_become_those_of_one() -> None:
    old, new = definition(("names", dict[str, str])), definition(("names", dict[str, str]))
    old["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["names"] = {
        "type": "object",
        "additionalProperties": True,
    }
    assert list(breaks(old, new)) == ["v1 spec.names.*: was anything, is string"]
    assert list(breaks(new, old)) == []


def imported(tmp_path: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    """The definition of the classes that are written from a definition."""
    file = tmp_path / "imported.py"
    file.write_text(source_of({"": manifest}))
    [made] = definitions_of(load_classes([file]))
    return made


def test_classes_written_from_a_definition_import_what_they_use() -> None:
    """Words of a description are no names."""
    manifest = yaml.safe_load(BUCKETS.with_suffix(".yaml").read_text())
    root = manifest["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    root["properties"]["spec"]["description"] = "The date, datetime, UUID and Literal field that convert and Any take."
    tree = ast.parse(source_of({"": manifest}))
    imported = {each.name for node in tree.body if isinstance(node, ast.ImportFrom) for each in node.names}
    assert imported <= {each.id for each in ast.walk(tree) if isinstance(each, ast.Name)}


def test_classes_written_from_a_definition_print_it_again(tmp_path: Path) -> None:
    manifest = yaml.safe_load(BUCKETS.with_suffix(".yaml").read_text())
    assert as_yaml([imported(tmp_path, manifest)]) == BUCKETS.with_suffix(".yaml").read_text()


def test_what_a_class_cannot_say_by_itself_is_kept(tmp_path: Path) -> None:
    spec = {
        "type": "object",
        "required": ["class"],
        "properties": {
            "class": {"type": "string", "description": 'Say "x\\y" and """z""".', "format": "hostname"},
            "clusterIP": {"type": "string", "pattern": "^\\p{L}+$"},
            "date": {"type": "string", "format": "date-time", "default": "2026-01-01T00:00:00Z"},
            "list": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "atomic"},
            "fooBar": {"type": "integer", "format": "int32", "maximum": 5},
            "foo_bar": {"type": "number", "nullable": True, "default": 1.5},
            "a-b": {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]},
            "parts": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}},
            },
            "empty": {"type": "object", "maxProperties": 0, "title": "two\nlines 😀"},
        },
    }
    manifest = definition(kind="Web", scope="Cluster", deprecated="gone", served=False, columns={"A": "metadata.name"})
    manifest["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] = spec
    assert imported(tmp_path, manifest) == manifest


def test_a_definition_writes_no_code(tmp_path: Path) -> None:
    evil = definition(("size", int))
    names = evil["spec"]["names"]
    with pytest.raises(OperatorError, match="is not as the API names"):
        imported(
            tmp_path, evil | {"spec": evil["spec"] | {"names": names | {"kind": "X:\n    pass\nraise SystemExit"}}}
        )
    schema = evil["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"] = {
        "a: int = exit()": {"type": "object", "description": '"""\nraise SystemExit\n"""'},
        "b = exit()": {"type": "str\nraise SystemExit", "default": "\nraise SystemExit"},
    }
    assert imported(tmp_path, evil)["metadata"] == evil["metadata"]
