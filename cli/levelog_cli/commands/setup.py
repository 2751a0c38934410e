"""Before and after a run: `init`, CRDs, `doctor`, `migrate`, `rbac`, `manifests` and `remove-finalizers`."""

import sys
from pathlib import Path
from typing import Annotated, Final, Literal

from levelog.escapes import escaped
from levelog_base.errors import ConfigurationError
from levelog_cli.commands.declaring import JsonLines, Operators, Work, answering, argument, option, switch
from levelog_cli.settings import NATS, Settings
from levelog_cli.wiring.roles import Role

_NAMESPACE: Final = "levelog"
"""Namespace in which the processes run if no other is named; not that in which people try things."""
_Inside = Annotated[str, option("Namespace in which the processes run.", "NAMESPACE")]
_CLUSTER: Final = ("kubeconfig", "context")


@answering(
    *(*NATS, "database_url", "shared_database", "application", "cluster", *_CLUSTER, "namespace"),
    *("data_dir", "redaction_key_file", "redact", "redaction"),
    is_quiet=True,
)
def doctor(
    settings: Settings,
    files: Annotated[list[Path] | None, argument("Operators whose permissions are checked.", "FILE")] = None,
    *,
    role: Annotated[
        Role | None, option("ingest, process or actuate: what it needs; default: all.", "ROLE", show_default=False)
    ] = None,
    as_json: JsonLines = False,
) -> Work:
    """Check the cluster and the permissions, NATS, and the database. Ends with status 1 if something is wrong."""
    from levelog_cli.checks.examination import examine

    return examine(settings, files or [], role, as_json=as_json)


@answering("database_url", "data_dir", "application")
def migrate(
    settings: Settings,
    files: Annotated[list[Path] | None, argument("Operators whose SQL views to create.", "FILE")] = None,
) -> Work:
    """Bring the database to the revision of this code."""
    from levelog_cli.servers.databases import migrate_database

    return migrate_database(settings, files or [])


@answering("application", "namespace")
def rbac(settings: Settings, files: Operators, *, operator_namespace: _Inside = _NAMESPACE) -> None:
    """Print accounts and roles for ingest, process and actuate, with just what these operators need."""
    from levelog_cli.deployment.accounts import roles_of
    from levelog_cli.loading import load_application

    application = load_application(settings, files)
    sys.stdout.write(roles_of(application, operator_namespace=operator_namespace, namespaces=settings.namespaces))


@answering()
def init(
    settings: Settings,  # noqa: ARG001 - of the logs
    name: Annotated[str, argument("Kind of its objects: `KafkaTopic`, or `shop`.", "NAME")],
    *,
    group: Annotated[str, option("API group of the kind.", "GROUP")] = "example.com",
) -> None:
    """Make a folder, NAME in small letters, with a small operator, its CRD, its tests, and what deploys it."""
    from levelog_cli.scaffold.project import make

    sys.stdout.writelines(f"{path}\n" for path in make(name, group, Path()))


@answering("application", "namespace")
def manifests(
    settings: Settings,
    files: Operators,
    *,
    image: Annotated[str, option("Image with levelog.", "IMAGE")],
    output: Annotated[Path, option("Folder to write to.", "FOLDER")],
    operator_namespace: _Inside = _NAMESPACE,
    format: Annotated[  # noqa: A002
        Literal["kustomize", "helm"], option("kustomize: a base and an overlay; helm: a chart.", "FORMAT")
    ] = "kustomize",
    single: Annotated[bool, switch("One pod with NATS and SQLite in it, and no other servers.", "--single")] = False,
    overwrite: Annotated[bool, switch("Replace what an earlier call has written.", "--overwrite")] = False,
) -> None:
    """Write what runs these operators on Kubernetes, with the accounts of `rbac`: for kustomize, or a Helm chart."""
    from levelog_cli.deployment import chart, kustomization
    from levelog_cli.deployment.files import write
    from levelog_cli.deployment.workloads import Workloads
    from levelog_cli.loading import load_application

    if not image.strip():
        raise ConfigurationError("--image is empty: give the image that has levelog and the operators")
    if format == "helm" and operator_namespace != _NAMESPACE:
        raise ConfigurationError(
            "--operator-namespace goes with --format kustomize: a chart runs in the namespace of its release"
        )
    if single and format == "helm":
        raise ConfigurationError("--single goes with --format kustomize: a chart has the processes one by one")
    application = load_application(settings, files)
    workloads = Workloads(
        application=application, files=files, image=image, inside=operator_namespace, namespaces=settings.namespaces
    )
    contents = kustomization.single if single else chart.contents if format == "helm" else kustomization.contents
    sys.stdout.writelines(f"{path}\n" for path in write(contents(workloads), output, is_overwriting=overwrite))


@answering(*_CLUSTER, "namespace")
def remove_finalizers(
    settings: Settings,
    files: Operators,
    *,
    finalizer: Annotated[
        list[str] | None, option("Remove this one instead, as Kopf left it; repeatable.", "NAME")
    ] = None,
    dry_run: Annotated[bool, switch("Only print which objects have one.", "--dry-run")] = False,
) -> Work:
    """Remove the finalizers of these operators from all objects that they read. Stop the operators first."""
    from levelog_cli.wiring import finalizers

    return finalizers.remove_finalizers(settings, files, finalizer or [], is_dry=dry_run)


@answering(*_CLUSTER)
def crd(
    settings: Settings,
    files: Annotated[list[Path], argument("Files with Resource classes, operators or not.", "FILE")],
    *,
    check: Annotated[bool, switch("Say what would break stored objects of the cluster.", "--check")] = False,
    against: Annotated[Path | None, option("Say what would break objects of an earlier FILE.", "FILE")] = None,
) -> Work | None:
    """Print CustomResourceDefinitions made from the Resource classes. A check that fails ends with status 1."""
    from levelog_base.wire.manifests import as_yaml
    from levelog_cli.crds.definitions import definitions_of
    from levelog_cli.crds.earlier import compare
    from levelog_cli.loading import load_classes

    made = definitions_of(load_classes(files))
    if check or against is not None:
        return compare(settings, made, against)
    sys.stdout.write(as_yaml(made))
    return None


@answering()
def import_crd(
    settings: Settings,  # noqa: ARG001 - of the logs
    file: Annotated[Path, argument("YAML of definitions.", "FILE")],
) -> None:
    """Print Resource classes for CustomResourceDefinitions; on stderr, what the classes cannot keep."""
    from levelog_cli.crds.earlier import in_file
    from levelog_cli.crds.importing import source_of
    from levelog_cli.crds.losses import losses

    definitions = in_file(file)
    sys.stdout.write(source_of(definitions))
    sys.stdout.flush()
    lost = (f"{name} {place}" for name, definition in definitions.items() for place in losses(definition))
    sys.stderr.writelines(f"not kept: {escaped(line)}\n" for line in lost)
