"""What is refused when an intent is made."""

from collections.abc import Callable
from typing import Any

import pytest

from levelog import Intent, Resource, apply, create, patch


class ConfigMap(Resource, version="v1", plural="configmaps"):
    """Only its name and owner are read."""


MAKERS: list[Callable[[dict[str, Any]], Intent]] = [
    lambda metadata: apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", **metadata}}),
    lambda metadata: create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", **metadata}}),
    lambda metadata: patch(ConfigMap, "a", {"metadata": metadata}),
]


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("field", ["uid", "resourceVersion"])
def test_a_body_that_names_an_incarnation_or_a_version_is_refused(
    make: Callable[[dict[str, Any]], Intent], field: str
) -> None:
    with pytest.raises(ValueError, match=rf"ConfigMap a: leave out metadata.{field}: .*if_unchanged"):
        make({field: "7", "labels": {}})
    make({"labels": {}})
