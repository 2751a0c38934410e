"""What happens in the story, each step done by a user of the cluster."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec import Struct

from levelog_sandbox import Sandbox

NAME: Final = "shop"
WEBS: Final = "webs.example.com"
NOISE: Final = 100


class ViewCall(Struct, frozen=True, kw_only=True):
    """One call of a view: the newest record that led to it, what it saw, and what it came to."""

    view: str
    parent: str
    ordinal: int
    cause: int
    round: int
    status: str
    desired: bytes | None
    actual: bytes | None


class StoryStep(Struct, frozen=True):
    """One step: what is told of it, and what is done."""

    title: str
    act: Callable[[Sandbox], None]
    looked_between: Callable[[Sequence[ViewCall]], bool] = lambda _: False
    """Whether levelog looked between two changes of this step, as it may."""
    then: str = ""
    """The actions of levelog in that case."""


def _appear(sandbox: Sandbox) -> None:
    web = sandbox.user.create(
        {
            "apiVersion": "example.com/v1",
            "kind": "Web",
            "metadata": {"name": NAME, "namespace": "default"},
            "spec": {"image": "nginx:1.28", "replicas": 3},
        }
    )
    sandbox.user.create(_pod(f"{NAME}-0", web["metadata"]["uid"]))


def _pod(name: str, owner: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": {"app": "web"},
            "ownerReferences": [
                {"apiVersion": "example.com/v1", "kind": "Web", "name": NAME, "uid": owner, "controller": True}
            ],
        },
        "spec": {"containers": [{"name": "web", "image": "nginx:1.28"}]},
    }


def _scale_down_and_up(sandbox: Sandbox) -> None:
    for replicas in (2, 3):
        sandbox.user.patch(WEBS, NAME, {"spec": {"replicas": replicas}})


def _delete_a_pod(sandbox: Sandbox) -> None:
    sandbox.user.delete("pods", f"{NAME}-1")


def _annotate(sandbox: Sandbox) -> None:
    pods = [pod["metadata"]["name"] for pod in sandbox.user.list("pods")]
    for number in range(NOISE):
        resource, name = ((WEBS, NAME), *(("pods", pod) for pod in pods))[number % (1 + len(pods))]
        sandbox.user.patch(resource, name, {"metadata": {"annotations": {"example.com/note": str(number)}}})


def _change_the_image(sandbox: Sandbox) -> None:
    sandbox.user.patch(WEBS, NAME, {"spec": {"image": "nginx:1.29"}})


def _delete_the_web(sandbox: Sandbox) -> None:
    sandbox.user.delete(WEBS, NAME)


STORY: Final = (
    StoryStep(
        "A Web with 3 replicas appears; one of its pods runs already",
        _appear,
        looked_between=lambda calls: calls[0].actual == b"{}",
        then="it tried to make all three pods; the API kept the one that runs.",
    ),
    StoryStep(
        "Its replicas go 3 → 2 → 3 in quick succession",
        _scale_down_and_up,
        looked_between=bool,
        then="it acted on 2 replicas, and then on 3.",
    ),
    StoryStep("Somebody deletes a pod by hand", _delete_a_pod),
    StoryStep(f"Annotations change {NOISE} times, on the Web and on its pods", _annotate),
    StoryStep("The image changes", _change_the_image),
    StoryStep("The Web is deleted", _delete_the_web),
)
