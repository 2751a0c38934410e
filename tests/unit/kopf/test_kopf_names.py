"""Names of Kopf: those that are there, which resources selectors name, and what arguments share."""

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from levelog import OperatorError
from levelog.compat import kopf
from levelog.compat.kopf.given.keywords import Body
from levelog.compat.kopf.kopftargets import target

PUBLIC = """
ABSENT AdmissionError AiohttpSession Annotations AnnotationsDiffBaseStorage AnnotationsProgressStorage
AsyncDaemonStopperChecker Body BodyEssence ConnectionInfo DaemonStopped DaemonStoppingReason Diff DiffBaseStorage
DiffItem DiffOperation EVERYTHING ErrorsMode FieldPath FieldSpec HandlerId HandlerRetriesError HandlerTimeoutError
Headers Index Labels LocalObjectLogger LogFormat Logger LoginError Memo Meta MultiDiffBaseStorage MultiProgressStorage
ObjectLogger ObjectReference Operation OperatorRegistry OperatorSettings OwnerReference PRESENT Patch PatchFn
PermanentError ProgressRecord ProgressStorage RawBody RawEvent RawEventType Reason Resource SSLPeer
SmartProgressStorage Spec Status StatusDiffBaseStorage StatusProgressStorage Store SyncDaemonStopperChecker
TemporaryError UserInfo WebhookAutoServer WebhookAutoTunnel WebhookClientConfig WebhookClientConfigService
WebhookDockerDesktopServer WebhookFn WebhookK3dServer WebhookMinikubeServer WebhookNgrokTunnel WebhookServer
WebhookServerProtocol adopt all_ any_ append_owner_reference build_object_reference build_owner_reference configure
daemon event exception execute get_default_lifecycle get_default_registry index info label lifecycles
login_via_async_client login_via_client login_via_pykube login_with_kubeconfig login_with_service_account none_ not_
on operator register remove_owner_reference run run_tasks set_default_lifecycle set_default_registry spawn_tasks
subhandler timer warn
"""
"""Of Kopf 1.45.2, as its `__all__` has them."""


@pytest.mark.parametrize("name", PUBLIC.split())
def test_a_public_name_of_kopf_is_there_or_refused_with_a_sentence(name: str) -> None:
    if name in kopf.__all__:
        assert getattr(kopf, name) is not None
        return
    with pytest.raises(OperatorError, match=rf"^kopf\.{name}: [\w.]+ \w+"):
        getattr(kopf, name)


def test_a_name_that_kopf_does_not_have_is_an_error_as_with_any_module() -> None:
    for name in ("anything", "TypoProgressStorage"):
        with pytest.raises(AttributeError, match="lists what it has"):
            getattr(kopf, name)
    for name in ("testing", "KopfRunner"):
        with pytest.raises(OperatorError, match="Simulation runs it"):
            kopf.__getattr__(name)


def test_words_of_kopf_equal_what_handlers_are_told() -> None:
    assert set(kopf.Reason) == {"create", "update", "delete", "resume"}
    assert set(kopf.DiffOperation) == {"add", "change", "remove"}


SHOPS = ("example.com", "v1", "shops")


@pytest.mark.parametrize(
    ("given", "named", "means"),
    [
        (SHOPS, {}, SHOPS),
        (("example.com/v1", "shops"), {}, SHOPS),
        (("shops.v1.example.com",), {}, SHOPS),
        ((), {"group": "example.com", "version": "v1", "plural": "shops"}, SHOPS),
        (("pods",), {}, ("", "v1", "pods")),
        (("po",), {}, ("", "v1", "pods")),
        (("Pod",), {}, ("", "v1", "pods")),
        (("v1", "pod"), {}, ("", "v1", "pods")),
        (("", "v1", "pods"), {}, ("", "v1", "pods")),
        (("apps", "deploy"), {}, ("apps", "v1", "deployments")),
        (("deployments.apps",), {}, ("apps", "v1", "deployments")),
        ((), {"kind": "Ingress"}, ("networking.k8s.io", "v1", "ingresses")),
        (("apps", "v1beta2", "deployments"), {}, ("apps", "v1beta2", "deployments")),
        (("shops.example.com",), {}, None),
        (("example.com", "shops"), {}, None),
        (("shops",), {}, None),
        (("example.com", "v1", "Shop"), {}, None),
        ((), {}, None),
        ((), {"category": "all"}, None),
        (("a", "v1", "b", "c"), {}, None),
    ],
)
def test_a_selector_names_one_resource_or_is_refused(
    given: tuple[str, ...], named: dict[str, Any], means: tuple[str, str, str] | None
) -> None:
    if means is None:
        with pytest.raises(OperatorError, match=r"^here: "):
            target("here", given, named)
        return
    resource = target("here", given, named).resource_type
    assert (resource.group, resource.version, resource.plural) == means


def test_a_resource_has_one_class() -> None:
    assert target("", SHOPS, {}) is target("", ("shops.v1.example.com",), {})
    assert target("", ("namespaces",), {}).resource_type.scope == "Cluster"
    assert target("", ("example.com", "v1", "policies"), {}).resource_type.kind == "Policy"


def test_importing_levelog_does_not_load_kopfs_names() -> None:
    program = "import sys, levelog; print(*(name for name in sys.modules if 'kopf' in name))"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert ended.stdout.strip() == ""


COPIES: list[Callable[[Any], Any]] = [copy.deepcopy, lambda found: pickle.loads(pickle.dumps(found))]


@pytest.mark.parametrize("copied", COPIES, ids=["deepcopy", "pickle"])
def test_a_copy_of_an_argument_is_of_its_kind_and_shares_no_content_with_the_object(
    copied: Callable[[Any], Any],
) -> None:
    known = {"metadata": {"name": "a"}, "spec": {"a": {"b": 1}}}
    body = Body(lambda: known)
    spec, whole = copied(body.spec), copied(body)
    assert (spec, whole) == ({"a": {"b": 1}}, known)
    spec["a"]["b"] = whole.spec["a"]["b"] = 2
    assert known["spec"] == {"a": {"b": 1}}
    assert (whole.metadata.name, dict(whole.spec)) == ("a", {"a": {"b": 2}})


def test_a_copy_stays_as_it_is_while_the_object_changes() -> None:
    known = {"spec": {"size": 1}}
    body = Body(lambda: known)
    copies = [copy.copy(body.spec), copy.deepcopy(body)["spec"]]
    known = {"spec": {"size": 2}}
    assert (body.spec["size"], [each["size"] for each in copies]) == (2, [1, 1])
