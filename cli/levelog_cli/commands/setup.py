"""Before and after a run: `init`, CRDs, `doctor`, `migrate`, `rbac`, `manifests` and `remove-finalizers`."""

import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from levelog.errors import ConfigurationError
from levelog.escapes import escaped
from levelog_cli.printing.forms import PlainForm, plain_form_of
from levelog_cli.running import FAILED, execute
from levelog_cli.settings import NATS, LogLevel, Settings, taking

_NAMESPACE: Final = "levelog"
"""Namespace in which the processes run if no other is named; not that in which people try things."""


@taking(
    *(*NATS, "database_url", "shared_database", "application", "cluster", "kubeconfig", "context", "namespace"),
    *("data_dir", "redaction_key_file", "redact", "redaction"),
)
def doctor(
    settings: Settings,
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", help="Operators whose permissions are checked.", show_default=False),
    ] = None,
    *,
    role: Annotated[
        str, typer.Option(help="ingest, process or actuate: what it needs; default: all.", metavar="ROLE")
    ] = "",
    output: Annotated[
        PlainForm | None,
        typer.Option(
            "--output", "-o", help="One line of JSON, or document of YAML, for each finding.", show_default=False
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
) -> None:
    """Check the cluster and the permissions, NATS, and the database. Ends with status 1 if something is wrong."""

    async def work() -> None:
        from levelog_cli.checks.examination import examine
        from levelog_cli.wiring.roles import named_role

        form = plain_form_of(output, as_json=as_json)
        if not await examine(settings, files or [], named_role(role), form=form):
            raise SystemExit(FAILED)

    # The findings say what the log would warn of.
    is_quiet = settings.log_level is not LogLevel.DEBUG
    execute(msgspec.structs.replace(settings, log_level=LogLevel.ERROR) if is_quiet else settings, work)


@taking("database_url", "data_dir", "application")
def migrate(
    settings: Settings,
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", help="Operators whose SQL views are made, too.", show_default=False),
    ] = None,
) -> None:
    """Bring the database to the revision of this code."""

    async def work() -> None:
        from levelog_cli.servers.databases import migrate_database

        await migrate_database(settings, files or [])

    execute(settings, work)


@taking("application", "namespace")
def rbac(
    settings: Settings,
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE", help="Operators, as `levelog run` takes them.", show_default=False),
    ],
    *,
    operator_namespace: Annotated[
        str, typer.Option(help="Namespace in which the processes run.", metavar="NAMESPACE")
    ] = _NAMESPACE,
) -> None:
    """Print accounts and roles for ingest, process and actuate, with just what these operators need."""

    async def work() -> None:
        from levelog_cli.loading import load_application
        from levelog_cli.wiring.manifests import roles_of

        application = load_application(settings, files)
        sys.stdout.write(roles_of(application, operator_namespace=operator_namespace, namespaces=settings.namespaces))

    execute(settings, work)


@taking()
def init(
    settings: Settings,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Kind of its objects: `KafkaTopic`, or `shop`.", show_default=False)
    ],
    *,
    group: Annotated[str, typer.Option(help="API group of the kind.", metavar="GROUP")] = "example.com",
) -> None:
    """Make a folder, NAME in small letters, with a small operator, its definition, its tests, and what runs it."""

    async def work() -> None:
        from levelog_cli.scaffold.project import make

        for path in make(name, group, Path()):
            sys.stdout.write(f"{path}\n")

    execute(settings, work)


@taking("application", "namespace")
def manifests(
    settings: Settings,
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE", help="Operators, as `levelog run` takes them.", show_default=False),
    ],
    *,
    image: Annotated[str, typer.Option(help="Image with levelog.", metavar="IMAGE", show_default=False)],
    output: Annotated[Path, typer.Option(help="Folder to write to.", metavar="FOLDER", show_default=False)],
    operator_namespace: Annotated[
        str, typer.Option(help="Namespace in which the processes run.", metavar="NAMESPACE")
    ] = _NAMESPACE,
    form: Annotated[
        str, typer.Option("--format", help="kustomize: a base and an overlay; helm: a chart.", metavar="FORMAT")
    ] = "kustomize",
    single: Annotated[
        bool, typer.Option("--single", help="One pod with NATS and SQLite in it, and no other servers.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what an earlier call has written.")] = False,
) -> None:
    """Write what runs these operators on Kubernetes, with the accounts of `rbac`: for kustomize, or a Helm chart."""

    async def work() -> None:
        from levelog_cli.deployment import chart, kustomization
        from levelog_cli.deployment.files import write
        from levelog_cli.deployment.workloads import Workloads
        from levelog_cli.loading import load_application

        formats = {"kustomize": kustomization.contents, "helm": chart.contents}
        if form not in formats:
            raise ConfigurationError(f"--format {form}: give {' or '.join(formats)}")
        if not image.strip():
            raise ConfigurationError("--image is empty: give the image that has levelog and the operators")
        if form == "helm" and operator_namespace != _NAMESPACE:
            raise ConfigurationError(
                "--operator-namespace goes with --format kustomize: a chart runs in the namespace of its release"
            )
        if single and form == "helm":
            raise ConfigurationError("--single goes with --format kustomize: a chart has the processes one by one")
        application = load_application(settings, files)
        workloads = Workloads(
            application=application, files=files, image=image, inside=operator_namespace, namespaces=settings.namespaces
        )
        made = kustomization.single(workloads) if single else formats[form](workloads)
        for path in write(made, output, is_overwriting=overwrite):
            sys.stdout.write(f"{path}\n")

    execute(settings, work)


@taking("kubeconfig", "context", "namespace")
def remove_finalizers(
    settings: Settings,
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE", help="Operators, as `levelog run` takes them.", show_default=False),
    ],
    *,
    finalizer: Annotated[
        list[str] | None,
        typer.Option(help="Remove this one instead, as Kopf left it; repeatable.", metavar="NAME", show_default=False),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print which objects have one.")] = False,
) -> None:
    """Remove the finalizers of these operators from all objects that they read. Stop the operators first."""

    async def work() -> None:
        from levelog_cli.wiring import finalizers

        if not await finalizers.remove_finalizers(settings, files, finalizer or [], is_dry=dry_run):
            raise SystemExit(FAILED)

    execute(settings, work)


@taking("kubeconfig", "context")
def crd(
    settings: Settings,
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE", help="Files with Resource classes, operators or not.", show_default=False),
    ],
    *,
    check: Annotated[bool, typer.Option("--check", help="Say what would break stored objects of the cluster.")] = False,
    against: Annotated[
        Path | None,
        typer.Option(help="Say what would break objects of an earlier FILE.", metavar="FILE", show_default=False),
    ] = None,
) -> None:
    """Print CustomResourceDefinitions made from the Resource classes. A check that fails ends with status 1."""

    def work() -> Coroutine[Any, Any, None] | None:
        from levelog.wire.manifests import as_yaml
        from levelog_cli.crds.definitions import definitions_of
        from levelog_cli.crds.earlier import compare
        from levelog_cli.loading import load_classes

        made = definitions_of(load_classes(files))

        async def checked() -> None:
            if not await compare(settings, made, against):
                raise SystemExit(FAILED)

        if check or against is not None:
            return checked()
        sys.stdout.write(as_yaml(made))
        return None

    execute(settings, work)


@taking()
def import_crd(
    settings: Settings,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="YAML of definitions.", show_default=False)],
) -> None:
    """Print Resource classes written from CustomResourceDefinitions; on stderr, what these do not keep."""

    def work() -> None:
        from levelog_cli.crds.earlier import in_file
        from levelog_cli.crds.importing import source_of
        from levelog_cli.crds.losses import losses

        definitions = in_file(file)
        source = source_of(definitions)
        sys.stdout.write(source)
        sys.stdout.flush()
        for line in losses(definitions, source):
            sys.stderr.write(f"not kept: {escaped(line)}\n")

    execute(settings, work)
