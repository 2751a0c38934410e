"""Where the API server is and who asks: kubernetes_asyncio's reading of kubeconfig files and service accounts."""

import os
from pathlib import Path

from kubernetes_asyncio.client.configuration import Configuration
from kubernetes_asyncio.config import ConfigException, load_incluster_config, load_kube_config

from levelog.errors import ConfigurationError

_DEFAULT_KUBECONFIG = "~/.kube/config"


async def load_configuration(kubeconfig: Path | None = None, context: str | None = None) -> Configuration:
    """The settings of the file given, else of KUBECONFIG, else of `~/.kube/config`, else of the pod's service account.

    Runs exec plugins and reads tokens anew each time. Raises ConfigurationError, naming the file.
    """
    configuration = Configuration()
    paths = str(kubeconfig) if kubeconfig is not None else os.environ.get("KUBECONFIG") or _DEFAULT_KUBECONFIG
    present = _readable_files(paths)
    if not present:
        if kubeconfig is not None or os.environ.get("KUBECONFIG"):
            raise ConfigurationError(f"kubeconfig {paths} does not exist")
        try:
            load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        except ConfigException as error:
            raise ConfigurationError(
                f"no cluster is configured: there is no {_DEFAULT_KUBECONFIG}, KUBECONFIG is not set, "
                "and this is not a pod with a service account"
            ) from error
        return configuration
    try:
        await load_kube_config(
            config_file=os.pathsep.join(map(str, present)),
            context=context,
            client_configuration=configuration,
            persist_config=False,
        )
    except Exception as error:  # the loader raises whatever it trips over in a malformed file
        raise ConfigurationError(f"kubeconfig {paths} cannot be used: {_in_one_line(error)}") from error
    if configuration.host == Configuration().host:
        raise ConfigurationError(f"kubeconfig {paths} names no server for its context")
    return configuration


def _readable_files(paths: str) -> list[Path]:
    """The files of the list that exist."""
    files: list[Path] = []
    for file in (Path(path).expanduser() for path in paths.split(os.pathsep) if path):
        try:
            with file.open("rb"):
                files.append(file)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise ConfigurationError(f"kubeconfig {file} cannot be read: {error.strerror}") from error
    return files


def _in_one_line(error: Exception) -> str:
    if isinstance(error, (TypeError, AttributeError, KeyError, AssertionError)):
        return "it is not a kubeconfig file"
    return " ".join(str(error).split()) or type(error).__name__
