"""Each public name of Kopf is there, or refused with what to do instead."""

import pytest

from levelog import OperatorError
from levelog.compat import kopf

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
    with pytest.raises(AttributeError, match="lists what it has"):
        kopf.__getattr__("anything")
    for name in ("testing", "KopfRunner"):
        with pytest.raises(OperatorError, match="Simulation runs it"):
            kopf.__getattr__(name)


def test_words_of_kopf_equal_what_handlers_are_told() -> None:
    assert set(kopf.Reason) == {"create", "update", "delete", "resume"}
    assert set(kopf.DiffOperation) == {"add", "change", "remove"}
