"""Reviews: who asks, and who may do what; the form of the answers is the same for all users."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rigs.clusterclient import Answer, ClusterClient

Json = dict[str, Any]
Ask = Callable[..., Awaitable[Answer]]

AUTHENTICATION, AUTHORIZATION = "authentication.k8s.io/v1", "authorization.k8s.io/v1"
PODS = {"verb": "get", "resource": "pods", "namespace": "default"}


@pytest.fixture
def ask(api: ClusterClient) -> Ask:
    """Ask for a review of a kind, by its spec."""

    async def ask(version: str, kind: str, spec: Json | None) -> Answer:
        body: Json = {"apiVersion": version, "kind": kind, **({} if spec is None else {"spec": spec})}
        return await api.create(f"/apis/{version}/{kind.lower()}s", body)

    return ask


async def test_who_asks_is_told_at_a_time(ask: Ask) -> None:
    answer = await ask(AUTHENTICATION, "SelfSubjectReview", None)
    assert (answer.code, list(answer.metadata)) == (201, ["creationTimestamp"])
    me = answer.body["status"]["userInfo"]
    assert me["username"]
    assert "system:authenticated" in me["groups"]


@pytest.mark.parametrize(
    "attributes",
    [
        {"resourceAttributes": PODS},
        {"resourceAttributes": {**PODS, "resource": "deployments", "group": "apps", "subresource": "scale"}},
        {"nonResourceAttributes": {"path": "/metrics", "verb": "get"}},
    ],
    ids=lambda attributes: str(list(attributes.values())),
)
async def test_one_who_may_do_everything_may_do_this(ask: Ask, attributes: Json) -> None:
    answer = await ask(AUTHORIZATION, "SelfSubjectAccessReview", attributes)
    assert (answer.code, answer.body["kind"]) == (201, "SelfSubjectAccessReview")
    assert answer.body["spec"] == attributes
    assert answer.body["status"] == {"allowed": True}
    assert answer.metadata["managedFields"][0]["manager"] == "contract"


async def test_a_question_about_nothing_is_invalid(ask: Ask) -> None:
    refused = await ask(AUTHORIZATION, "SelfSubjectAccessReview", {})
    assert (refused.code, refused.reason) == (422, "Invalid")
    assert refused.body["message"].startswith('.authorization.k8s.io "" is invalid: spec.')
    said = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
    assert refused.body["message"].endswith(said)
    assert "kind" not in refused.body["details"]


async def test_a_review_of_another_kind_is_a_bad_request(api: ClusterClient, ask: Ask) -> None:
    path = f"/apis/{AUTHORIZATION}/selfsubjectaccessreviews"
    for body in ({"apiVersion": "v1", "kind": "Pod"}, {"spec": {"resourceAttributes": 5}}, "{x"):
        assert (await api.ask("POST", path, body)).code == 400
    warned = await ask(AUTHORIZATION, "SelfSubjectAccessReview", {"resourceAttributes": PODS, "wrong": 1})
    assert (warned.code, warned.warnings) == (201, ('299 - "unknown field \\"spec.wrong\\""',))


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", f"/apis/{AUTHENTICATION}/selfsubjectreviews", 405),
        ("DELETE", f"/apis/{AUTHENTICATION}/selfsubjectreviews", 405),
        ("GET", f"/apis/{AUTHENTICATION}/selfsubjectreviews/a", 404),
        ("GET", f"/apis/{AUTHENTICATION}/other", 404),
        ("POST", f"/apis/{AUTHENTICATION}/namespaces/default/selfsubjectreviews", 404),
    ],
)
async def test_reviews_are_only_created(api: ClusterClient, method: str, path: str, code: int) -> None:
    answer = await api.ask(method, path, {} if method == "POST" else None)
    assert (answer.code, answer.body["kind"]) == (code, "Status")


async def test_reviews_are_listed_with_the_resources(api: ClusterClient) -> None:
    listed = (await api.get(f"/apis/{AUTHENTICATION}")).body["resources"]
    found = {each["name"]: (each["kind"], each["namespaced"], each["verbs"]) for each in listed}
    assert found["selfsubjectreviews"] == ("SelfSubjectReview", False, ["create"])
    groups = (await api.get("/apis")).body["groups"]
    assert {"authentication.k8s.io", "authorization.k8s.io"} <= {group["name"] for group in groups}
