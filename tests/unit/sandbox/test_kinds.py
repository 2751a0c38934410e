"""Which kinds the sandbox serves without a definition."""

from levelog.compat.kopf.kopftargets import BUILT_IN
from levelog_sandbox.schemas.registry import Registry


def test_it_serves_what_operators_commonly_read_and_write() -> None:
    served = {(each.group, each.version, each.plural) for each in Registry()}
    missing = {(group, version, plural) for group, version, plural, *_ in BUILT_IN} - served
    assert missing == {("", "v1", "replicationcontrollers")}, "which Deployments have replaced"
