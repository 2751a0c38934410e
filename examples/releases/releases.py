"""Releases: which commit a branch of a Git repository is at, in the status of an object that follows it.

Shows an external source: the branches are no objects of the cluster, and are read by a view as if they were. Only a
branch that moves wakes the Releases that follow it.

Run it in a clone with `levelog run examples/releases/releases.py` after `kubectl apply -f examples/releases/crd.yaml`.
"""

import os
import subprocess
from collections.abc import Iterator
from datetime import timedelta

from msgspec import field

from levelog import External, Intent, Level, Objects, Operator, Resource, Struct, patch_status


class Git(Struct):
    repository: str = "."


op = Operator("releases", settings=Git(repository=os.environ.get("REPOSITORY", ".")))


class Branch(External, plural="branches"):
    commit: str


class ReleaseSpec(Struct):
    branch: str


class ReleaseStatus(Struct):
    commit: str | None = None


class Release(Resource, group="example.com", version="v1", plural="releases", columns={"Commit": "status.commit"}):
    spec: ReleaseSpec
    status: ReleaseStatus = field(default_factory=ReleaseStatus)


@op.source(Branch, every=timedelta(seconds=2))
def branches(git: Git) -> Iterator[Branch]:
    """Every branch of the repository, with the commit that it is at."""
    command = ["git", "-C", git.repository, "for-each-ref", "--format=%(refname:short) %(objectname)", "refs/heads"]
    for line in subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines():  # noqa: S603
        name, commit = line.split()
        yield Branch(name=name, commit=commit)


@op.view(reads=[Branch])
def followed(release: Release, objects: Objects) -> Level[str | None]:
    """The commit of the branch, and the one that the status shows."""
    branch = objects.get(Branch, release.spec.branch)
    return Level(desired=branch.commit if branch else None, actual=release.status.commit)


@op.reconcile(followed, writes={Release: ["patch_status"]})
def show(release: Release, level: Level[str | None]) -> Iterator[Intent]:
    yield patch_status(release, {"commit": level.desired})
