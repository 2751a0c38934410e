"""Classes of resources: frozen, and every field of them stands for one in camelCase."""

from dataclasses import dataclass

import msgspec
import pytest

from levelog import External, Level, Operator, Resource, Struct
from levelog_base.errors import OperatorError


class Status(Struct):
    names: tuple[str, ...] = ()


@dataclass
class Rollout:
    max_surge: int = 1


class Plain(msgspec.Struct):
    max_surge: int = 1


class Renamed(msgspec.Struct, rename="camel"):
    max_surge: int = 1


@dataclass
class Size:
    width: int = 1


def test_a_struct_may_be_the_default_of_a_field() -> None:
    class Web(Resource, group="example.com", version="v1", plural="webs"):
        status: Status = Status()

    web = msgspec.json.decode(b'{"metadata": {"name": "shop"}}', type=Web)
    assert web.status == Status(names=())


def test_a_function_that_changes_its_object_fails() -> None:
    web = Status()
    with pytest.raises(AttributeError):
        web.names = ("a",)  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("inner", [Rollout, Plain])
@pytest.mark.parametrize("within", ["", "list", "dict", "struct"])
def test_a_class_whose_fields_are_not_in_camel_case_is_refused(inner: type, within: str) -> None:
    Spec = {  # noqa: N806 - a class
        "": inner,
        "list": list[inner] | None,  # type: ignore[valid-type]
        "dict": dict[str, inner],  # type: ignore[valid-type]
        "struct": msgspec.defstruct("Spec", [("rollout", inner)], bases=(Struct,)),
    }[within]

    class Web(Resource, group="example.com", version="v1", plural="webs"):
        spec: Spec  # type: ignore[valid-type]  # pyright: ignore[reportInvalidTypeForm]

    op = Operator("webs")
    with pytest.raises(OperatorError, match=f"class Web: {inner.__name__} looks for max_surge under that very name"):

        @op.view
        def rolled(web: Web) -> Level[int]:
            return Level(desired=1, actual=web.metadata.name.count("a"))


def test_classes_whose_names_are_the_same_in_camel_case_are_taken() -> None:
    class Web(Resource, group="example.com", version="v1", plural="webs"):
        spec: Renamed
        size: Size

    op = Operator("webs")

    @op.view
    def rolled(web: Web) -> Level[int]:
        return Level(desired=web.spec.max_surge, actual=web.size.width)


def test_records_of_other_systems_are_named_as_they_like() -> None:
    class Branch(External, plural="branches"):
        rollout: Rollout

    op = Operator("branches")

    @op.index
    def rollouts(branch: Branch) -> dict[str, int]:
        return {branch.name: branch.rollout.max_surge}
