"""Projects: what a tenant gets, and what becomes of it. Each Project is

- a Namespace with a ResourceQuota and a RoleBinding for its members,
- a token in a Secret, another one after `spec.rotateDays`, and put back if somebody edits it,
- a last backup by a Job, before the Project goes, and its namespace with it.

Deployments in the namespaces of Projects roll when the ConfigMap `platform/settings` changes.

Run it with `levelog run examples/projects/projects.py` after `kubectl apply -f examples/projects/crd.yaml`.
"""

import hmac
from collections.abc import Iterator
from datetime import datetime, timedelta
from hashlib import sha256
from random import Random
from typing import Annotated

from msgspec import Meta, field

from levelog import (
    Index,
    Intent,
    Level,
    Manifest,
    Objects,
    Operator,
    Owner,
    Resource,
    Retry,
    Struct,
    create,
    patch,
    patch_status,
)
from levelog.conditions import Condition


class Settings(Struct, frozen=True):
    backup_image: str = "backup:1"
    shared_namespace: str = "platform"
    shared_config: str = "settings"


op = Operator("projects", settings=Settings())

SEEN = "example.com/settings"
"""Annotation of pods: the content of the shared ConfigMap that they began with."""


class ProjectSpec(Struct):
    members: list[str] = []
    quota: dict[str, str] = field(default_factory=lambda: {"pods": "10"})
    rotate_days: Annotated[int, Meta(ge=1)] = 30


class ProjectStatus(Struct):
    conditions: list[Condition] = []
    rotated_at: datetime | None = None
    backup: str = ""


class Project(
    Resource,
    group="example.com",
    version="v1",
    plural="projects",
    scope="Cluster",
    columns={"Rotated": "status.rotatedAt", "Backup": "status.backup"},
):
    spec: ProjectSpec = ProjectSpec()
    status: ProjectStatus = ProjectStatus()


class Namespace(Resource, version="v1", plural="namespaces", scope="Cluster"):
    """Classes of children name no fields."""


class ResourceQuota(Resource, version="v1", plural="resourcequotas"):
    """Neither does this one."""


class RoleBinding(Resource, group="rbac.authorization.k8s.io", version="v1", plural="rolebindings"):
    """Nor this one."""


class Secret(Resource, version="v1", plural="secrets"):
    """Nor this one."""


@op.view
def fresh(project: Project, now: datetime) -> Level[bool]:
    """A Project has a token that is not older than it may be."""
    last = project.status.rotated_at
    end = None if last is None else last + timedelta(days=project.spec.rotate_days)
    is_fresh = end is not None and now < end
    return Level(desired=True, actual=is_fresh, recheck_at=end if is_fresh else None)


@op.reconcile(fresh, writes={Project: ["patch_status"]})
def rotate(project: Project, now: datetime) -> Iterator[Intent]:
    yield patch_status(project, {"rotatedAt": now.isoformat()})


@op.children(Project, of=[Namespace, ResourceQuota, RoleBinding, Secret])
def tenancy(project: Project, chance: Random) -> Iterator[Manifest]:
    """Kinds are applied in this order, so that the namespace is there before what is in it."""
    name = project.metadata.name
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    yield {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "project", "namespace": name},
        "spec": {"hard": project.spec.quota},
    }
    rbac = "rbac.authorization.k8s.io"
    yield {
        "apiVersion": f"{rbac}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "members", "namespace": name},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"kind": "User", "apiGroup": rbac, "name": member} for member in project.spec.members],
    }
    if (since := project.status.rotated_at) is not None:
        token = hmac.digest(chance.randbytes(32), since.isoformat().encode(), "sha256").hex()
        yield {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "token", "namespace": name},
            "stringData": {"token": token},
        }


class JobStatus(Struct):
    succeeded: int = 0


class Job(Resource, group="batch", version="v1", plural="jobs"):
    status: JobStatus = JobStatus()


@op.index
def backups(job: Job) -> Iterator[tuple[Owner, int]]:
    if owner := job.metadata.controlled_by(Project):
        yield owner, job.status.succeeded


@op.view(deleting=True)
def saved(project: Project, backups: Index[Owner, int]) -> Level[dict[str, str]]:
    """A Project that is being deleted has a backup, and its status says so."""
    if project.metadata.deletion_timestamp is None:
        return Level(desired={}, actual={})
    jobs = backups[project.as_owner]
    desired = {"job": "there", "status": "Done" if any(jobs) else "Running"}
    return Level(desired=desired, actual={"job": "there" if jobs else "", "status": project.status.backup})


@op.reconcile(saved, writes={Job: ["create"], Project: ["patch_status"]})
def save(project: Project, level: Level[dict[str, str]], settings: Settings) -> Iterator[Intent]:
    if "job" in level.drift.changed:
        container = {"name": "backup", "image": settings.backup_image, "args": [project.metadata.name]}
        yield create(
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {"name": "last-backup", "namespace": project.metadata.name},
                "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
            }
        )
    if "status" in level.drift.changed:
        yield patch_status(project, {"backup": level.desired["status"]})


@op.on.delete(finalizer=True)
def release(project: Project) -> None:
    """Called again as soon as the status says something else."""
    if project.status.backup != "Done":
        raise Retry("the last backup is not done", delay=timedelta(minutes=1))


class TemplateMetadata(Struct):
    annotations: dict[str, str] = {}


class Template(Struct):
    metadata: TemplateMetadata = TemplateMetadata()


class DeploymentSpec(Struct):
    template: Template = Template()


class Deployment(Resource, group="apps", version="v1", plural="deployments"):
    spec: DeploymentSpec = DeploymentSpec()


class ConfigMap(Resource, version="v1", plural="configmaps"):
    data: dict[str, str] = {}


@op.index
def projects(project: Project) -> Iterator[tuple[str, str]]:
    yield project.metadata.name, project.metadata.name


@op.view(reads=[ConfigMap])
def rolled(deployment: Deployment, projects: Index[str, str], objects: Objects, settings: Settings) -> Level[str]:
    """Pods of a Project run with the shared settings as they are."""
    seen = deployment.spec.template.metadata.annotations.get(SEEN, "")
    if deployment.metadata.namespace not in projects:
        return Level(desired=seen, actual=seen)
    shared = objects.get(ConfigMap, settings.shared_config, namespace=settings.shared_namespace)
    content = "" if shared is None else sha256(repr(sorted(shared.data.items())).encode()).hexdigest()[:16]
    return Level(desired=content or seen, actual=seen)


@op.reconcile(rolled, writes={Deployment: ["patch"]})
def roll(deployment: Deployment, level: Level[str]) -> Iterator[Intent]:
    template = {"metadata": {"annotations": {SEEN: level.desired}}}
    yield patch(Deployment, deployment.metadata.name, {"spec": {"template": template}})


op.conditions(Project)
