import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelog_base.errors import ConfigurationError
from levelog_base.wire.objects import Cluster, GroupResource, ObjectKey, Partition, decode_token, encode_token, is_newer
from levelog_base.wire.subjects import fnv1a_32, object_subject, partition_of, resource_subjects, stream_subjects

names = st.text(alphabet=string.ascii_lowercase + string.digits + "-.", min_size=1, max_size=20)
groups = st.one_of(st.just(""), names.map(lambda name: f"{name}.example.com"))
keys = st.builds(
    ObjectKey,
    group=groups,
    resource=st.text(alphabet=string.ascii_lowercase, min_size=1),
    namespace=st.one_of(st.just(""), names),
    name=names,
)


def test_versions_of_a_group_are_ordered_by_what_came_later() -> None:
    names = ["2020-01", "foo", "v1alpha1", "v1alpha2", "v1alpha10", "v1beta1", "v1", "v2alpha1", "v2beta1", "v2", "v10"]
    for place, name in enumerate(names):
        newer = [other for other in names if is_newer(f"example.com/{other}", f"example.com/{name}")]
        assert newer == names[place + 1 :]
    assert not is_newer("v1", "")
    assert not is_newer("", "v1")


@pytest.mark.parametrize("text", ["pods", "pods/default", "pods/default/", "//"])
def test_a_text_that_names_no_object_is_refused_with_the_form_to_write(text: str) -> None:
    with pytest.raises(ConfigurationError, match="RESOURCE"):
        ObjectKey.parse(text)


def test_resources_print_as_kubectl_does() -> None:
    assert str(GroupResource(group="", resource="pods")) == "pods"
    assert str(GroupResource(group="example.com", resource="webs")) == "webs.example.com"


@given(st.text(min_size=1))
def test_an_encoded_token_is_one_token_and_reads_back(text: str) -> None:
    token = encode_token(text)
    assert not set(token) & set(". *>~\t\n")
    assert decode_token(token) == text


@given(keys)
def test_a_subject_has_seven_tokens_and_lies_under_its_wildcards(key: ObjectKey) -> None:
    tokens = object_subject(Cluster("c"), key, Partition(3)).split(".")
    assert len(tokens) == 7
    pattern = resource_subjects(Cluster("c"), key.group_resource).split(".")
    assert all(wanted in ("*", token) for wanted, token in zip(pattern, tokens, strict=True))
    assert stream_subjects(Cluster("c")) == "levelog.c.>"


@pytest.mark.parametrize(("data", "value"), [(b"", 0x811C9DC5), (b"a", 0xE40C292C), (b"foobar", 0xBF9CF968)])
def test_the_hash_is_fnv_1a_as_its_authors_list_it(data: bytes, value: int) -> None:
    assert fnv1a_32(data) == value


def test_all_incarnations_of_an_object_are_in_one_partition() -> None:
    key = ObjectKey(group="", resource="pods", namespace="default", name="web-0")
    assert partition_of(key) == partition_of(ObjectKey.parse("pods/default/web-0"))
    assert 0 <= partition_of(key, 4) < 4
