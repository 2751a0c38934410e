"""Reviews: whose token it is, who asks, and who may do what; the form of the answers is the same for all users."""

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

    async def ask(version: str, kind: str, spec: Json | None, **more: Any) -> Answer:
        body: Json = {"apiVersion": version, "kind": kind, **more}
        if spec is not None:
            body["spec"] = spec
        return await api.create(f"/apis/{version}/{kind.lower()}s", body)

    return ask


def shown(answer: Answer) -> Json:
    """A review without the time at which it was asked for."""
    for entry in answer.body["metadata"].get("managedFields", ()):
        del entry["time"]
    return dict(answer.body)


async def test_a_token_that_nobody_has_is_invalid(ask: Ask) -> None:
    answer = await ask(AUTHENTICATION, "TokenReview", {"token": "nobody's"})
    assert answer.code == 201
    entry = {"manager": "contract", "operation": "Update", "apiVersion": AUTHENTICATION, "fieldsType": "FieldsV1"}
    assert shown(answer) == {
        "kind": "TokenReview",
        "apiVersion": AUTHENTICATION,
        "metadata": {"managedFields": [{**entry, "fieldsV1": {"f:spec": {"f:token": {}}}}]},
        "spec": {"token": "nobody's"},
        "status": {"user": {}, "error": "invalid bearer token"},
    }


async def test_the_token_of_a_user_names_the_user(ask: Ask, own_token: str) -> None:
    me = (await ask(AUTHENTICATION, "SelfSubjectReview", None)).body["status"]["userInfo"]
    answer = await ask(AUTHENTICATION, "TokenReview", {"token": own_token})
    audiences = ["https://kubernetes.default.svc"]
    assert answer.body["status"] == {"authenticated": True, "user": me, "audiences": audiences}
    assert me["username"]
    assert "system:authenticated" in me["groups"]
    again = await ask(AUTHENTICATION, "TokenReview", {"token": own_token, "audiences": [*audiences, "other"]})
    assert again.body["status"]["audiences"] == audiences
    other = await ask(AUTHENTICATION, "TokenReview", {"token": own_token, "audiences": ["other"]})
    assert other.body["status"] == {"user": {}, "error": "invalid bearer token"}


async def test_who_asks_is_told_at_a_time(ask: Ask) -> None:
    answer = await ask(AUTHENTICATION, "SelfSubjectReview", None)
    assert (answer.code, list(answer.metadata)) == (201, ["creationTimestamp"])


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
    for kind, user in (("SelfSubjectAccessReview", {}), ("SubjectAccessReview", {"groups": ["system:masters"]})):
        answer = await ask(AUTHORIZATION, kind, {**attributes, **user})
        assert (answer.code, answer.body["kind"]) == (201, kind)
        assert answer.body["spec"] == {**attributes, **user}
        assert answer.body["status"] == {"allowed": True}
        assert answer.metadata["managedFields"][0]["manager"] == "contract"


async def test_rights_in_a_namespace_are_asked_for_there(api: ClusterClient, namespace: str) -> None:
    path = f"/apis/{AUTHORIZATION}/namespaces/{namespace}/localsubjectaccessreviews"
    asked = {"groups": ["system:masters"], "resourceAttributes": {**PODS, "namespace": namespace}}
    answer = await api.create(path, {"spec": asked})
    assert (answer.code, answer.metadata["namespace"], answer.body["status"]) == (201, namespace, {"allowed": True})
    for wrong, field in (
        ({"resourceAttributes": PODS}, "spec.resourceAttributes.namespace"),
        ({"nonResourceAttributes": {"path": "/", "verb": "get"}}, "spec.nonResourceAttributes"),
    ):
        refused = await api.create(path, {"spec": {"user": "jane", **wrong}})
        assert (refused.code, refused.faults) == (422, {(field, "FieldValueInvalid")})


@pytest.mark.parametrize(
    ("kind", "spec", "message"),
    [
        ("SelfSubjectAccessReview", {}, "exactly one of nonResourceAttributes or resourceAttributes must be specified"),
        ("SubjectAccessReview", {"resourceAttributes": PODS}, "at least one of user or group must be specified"),
        (
            "SubjectAccessReview",
            {"user": "jane", "resourceAttributes": PODS, "nonResourceAttributes": {"path": "/", "verb": "get"}},
            'Invalid value: {"Path":"/","Verb":"get"}: cannot be specified in combination with resourceAttributes',
        ),
    ],
)
async def test_a_question_that_is_none_is_invalid(ask: Ask, kind: str, spec: Json, message: str) -> None:
    refused = await ask(AUTHORIZATION, kind, spec)
    assert (refused.code, refused.reason) == (422, "Invalid")
    assert refused.body["message"].startswith('.authorization.k8s.io "" is invalid: spec.')
    assert refused.body["message"].endswith(message)
    assert "kind" not in refused.body["details"]


async def test_a_review_of_rights_has_no_name(ask: Ask) -> None:
    spec = {"user": "jane", "resourceAttributes": PODS}
    refused = await ask(AUTHORIZATION, "SubjectAccessReview", spec, metadata={"name": "a"})
    assert (refused.code, refused.faults) == (422, {("metadata", "FieldValueInvalid")})


async def test_a_review_without_a_token_or_of_another_kind_is_a_bad_request(api: ClusterClient, ask: Ask) -> None:
    refused = await ask(AUTHENTICATION, "TokenReview", {})
    assert (refused.code, refused.body["message"]) == (400, "token is required for TokenReview in authentication")
    path = f"/apis/{AUTHORIZATION}/subjectaccessreviews"
    for body in ({"apiVersion": "v1", "kind": "Pod"}, {"spec": {"resourceAttributes": 5}}, "{x"):
        assert (await api.ask("POST", path, body)).code == 400
    warned = await ask(AUTHENTICATION, "TokenReview", {"token": "x", "wrong": 1})
    assert (warned.code, warned.warnings) == (201, ('299 - "unknown field \\"spec.wrong\\""',))


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", f"/apis/{AUTHENTICATION}/tokenreviews", 405),
        ("DELETE", f"/apis/{AUTHENTICATION}/tokenreviews", 405),
        ("GET", f"/apis/{AUTHENTICATION}/tokenreviews/a", 404),
        ("GET", f"/apis/{AUTHENTICATION}/other", 404),
        ("POST", f"/apis/{AUTHENTICATION}/namespaces/default/tokenreviews", 404),
        ("POST", f"/apis/{AUTHORIZATION}/localsubjectaccessreviews", 404),
    ],
)
async def test_reviews_are_only_created(api: ClusterClient, method: str, path: str, code: int) -> None:
    answer = await api.ask(method, path, {} if method == "POST" else None)
    assert (answer.code, answer.body["kind"]) == (code, "Status")


async def test_reviews_are_listed_with_the_resources(api: ClusterClient) -> None:
    listed = (await api.get(f"/apis/{AUTHENTICATION}")).body["resources"]
    assert {each["name"]: (each["kind"], each["namespaced"], each["verbs"]) for each in listed} == {
        "selfsubjectreviews": ("SelfSubjectReview", False, ["create"]),
        "tokenreviews": ("TokenReview", False, ["create"]),
    }
    groups = (await api.get("/apis")).body["groups"]
    assert {"authentication.k8s.io", "authorization.k8s.io"} <= {group["name"] for group in groups}
    accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    items = (await api.get("/apis", accept=accept)).body["items"]
    (found,) = [group for group in items if group["metadata"]["name"] == "authentication.k8s.io"]
    resources = {each["resource"]: (each["scope"], each["verbs"]) for each in found["versions"][0]["resources"]}
    assert resources["tokenreviews"] == ("Cluster", ["create"])
