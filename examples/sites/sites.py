"""Sites: one custom resource becomes a ConfigMap, a Service and a Deployment.

Shows `@op.children`: the function returns what a Site should have, and levelog applies what is missing or differs and
deletes what is not returned any more. There is no index, no view and no reconcile function to write.

Run it with `levelog run examples/sites/sites.py` after `kubectl apply -f examples/sites/crd.yaml`.
"""

from collections.abc import Iterator
from hashlib import sha256
from typing import Annotated

from msgspec import Meta

from levelog import Manifest, Operator, Resource, Struct

op = Operator("sites")


class SiteSpec(Struct):
    image: Annotated[str, Meta(min_length=1)]
    replicas: Annotated[int, Meta(ge=0)] = 2
    port: Annotated[int, Meta(ge=0, le=65535)] = 0
    """Where the site is reached; 0: nowhere, so that it needs no Service."""
    pages: dict[str, str] = {}


class Site(
    Resource,
    group="example.com",
    version="v1",
    plural="sites",
    columns={"Image": "spec.image", "Replicas": "spec.replicas"},
):
    spec: SiteSpec


class ConfigMap(Resource, version="v1", plural="configmaps"):
    """What a class of children names does not count: all that a manifest sets is compared."""


class Service(Resource, version="v1", plural="services"):
    pass


class Deployment(Resource, group="apps", version="v1", plural="deployments"):
    pass


@op.children(Site, of=[ConfigMap, Service, Deployment])
def parts(site: Site) -> Iterator[Manifest]:
    """What a Site consists of, in the order in which it is applied."""
    yield config(site)
    if site.spec.port:
        yield service(site)
    yield deployment(site)


def config(site: Site) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{site.metadata.name}-pages"},
        "data": site.spec.pages,
    }


def service(site: Site) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": site.metadata.name},
        "spec": {"selector": {"site": site.metadata.name}, "ports": [{"port": site.spec.port, "targetPort": 80}]},
    }


def deployment(site: Site) -> Manifest:
    """The pages' digest is among the pod's annotations, so that new pages lead to new pods."""
    labels = {"site": site.metadata.name}
    digest = sha256(repr(sorted(site.spec.pages.items())).encode()).hexdigest()[:12]
    container = {
        "name": "site",
        "image": site.spec.image,
        "ports": [{"containerPort": 80}],
        "volumeMounts": [{"name": "pages", "mountPath": "/usr/share/nginx/html"}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": site.metadata.name},
        "spec": {
            "replicas": site.spec.replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels, "annotations": {"example.com/pages": digest}},
                "spec": {
                    "containers": [container],
                    "volumes": [{"name": "pages", "configMap": {"name": f"{site.metadata.name}-pages"}}],
                },
            },
        },
    }
