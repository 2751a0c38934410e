"""Where the API server is and who asks: kubeconfig files, read by kubernetes_asyncio, and pods' service accounts."""

import logging
import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from levelog_base.errors import ConfigurationError
from levelog_kube.official import Configuration, load_kube_config
from levelog_kube.sessions import proxy_of

FOLDER: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
HOST: Final = "KUBERNETES_SERVICE_HOST"
PORT: Final = "KUBERNETES_SERVICE_PORT"
_FRESH_SECONDS: Final = 60.0  # as client-go; a projected token is replaced when a fifth of its hour is left
_DEFAULT_KUBECONFIG = "~/.kube/config"
_TOKEN: Final = "BearerToken"  # noqa: S105 - the name under which the loader puts it
log = logging.getLogger(__name__)
_loader_log = logging.getLogger("kubernetes_asyncio.config.kube_config")


async def load_configuration(kubeconfig: Path | None = None, context: str | None = None) -> Configuration:
    """The settings in the given file, else in KUBECONFIG, `~/.kube/config`, or the pod's service account.

    Runs exec plugins and reads tokens again each time. Raises ConfigurationError, naming the file.
    """
    paths = _paths(kubeconfig)
    present = kubeconfig_files(kubeconfig)
    if present:
        return await _load_files(paths, present, context)
    if kubeconfig is not None or os.environ.get("KUBECONFIG"):
        raise ConfigurationError(f"kubeconfig {paths} does not exist")
    if not is_in_pod():
        raise ConfigurationError(
            f"no cluster is configured: there is no {_DEFAULT_KUBECONFIG}, KUBECONFIG is not set, "
            "and this is not a pod with a service account; `levelog dev` brings a cluster in memory"
        )
    return load_service_account(FOLDER)


async def _load_files(paths: str, present: list[Path], context: str | None) -> Configuration:
    configuration = Configuration()
    try:
        with _raising_what_is_logged():
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
    if configuration.proxy:
        configuration.proxy = proxy_of(configuration.proxy, f"kubeconfig {paths}: proxy-url")
    if token := configuration.api_key.get(_TOKEN):
        configuration.api_key[_TOKEN] = token.strip()  # files of tokens often end with a line break
        if not configuration.api_key[_TOKEN].isprintable():
            raise ConfigurationError(f"kubeconfig {paths}: its token has line breaks or other control characters")
    return configuration


@contextmanager
def _raising_what_is_logged() -> Generator[None]:
    """Raise ConfigurationError for errors that the loader only logs: it would continue without credentials."""
    told: list[str] = []

    def take(record: logging.LogRecord) -> bool:
        if record.levelno >= logging.ERROR:
            told.append(record.getMessage())
        return record.levelno < logging.ERROR

    _loader_log.addFilter(take)
    try:
        yield
    finally:
        _loader_log.removeFilter(take)
    if told:
        raise ConfigurationError(told[0])


def _paths(kubeconfig: Path | None) -> str:
    return str(kubeconfig) if kubeconfig is not None else os.environ.get("KUBECONFIG") or _DEFAULT_KUBECONFIG


def kubeconfig_files(kubeconfig: Path | None = None) -> list[Path]:
    """The files that `load_configuration` reads; none: the pod's service account. Raises ConfigurationError."""
    files: list[Path] = []
    for file in (Path(path).expanduser() for path in _paths(kubeconfig).split(os.pathsep) if path):
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


def is_in_pod() -> bool:
    """Tell whether this process runs in a pod, by its environment."""
    return bool(os.environ.get(HOST))


def load_service_account(folder: Path) -> Configuration:
    """The settings of a pod. Raises ConfigurationError naming the file or the variable that is missing."""
    host, port = os.environ.get(HOST, ""), os.environ.get(PORT, "")
    if not port:
        raise ConfigurationError(f"{HOST} is set and {PORT} is not: both are needed to reach the API from a pod")
    configuration = Configuration()
    configuration.host = f"https://{f'[{host}]' if ':' in host else host}:{port}"
    authority = folder / "ca.crt"
    if not authority.is_file():
        raise ConfigurationError(f"the service account has no certificate authority: {authority} does not exist")
    configuration.ssl_ca_cert = str(authority)
    _Token(folder / "token").lend(configuration)
    return configuration


class _Token:
    """The token in a file, read again once it is a minute old."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._text = self._read()
        self._read_at = time.monotonic()

    def lend(self, configuration: Configuration) -> None:
        """Let a configuration use it; it asks before each request."""
        configuration.refresh_api_key_hook = self._renew
        self._renew(configuration)

    def _renew(self, configuration: Configuration) -> None:
        if time.monotonic() - self._read_at >= _FRESH_SECONDS:
            try:
                self._text = self._read()
            except ConfigurationError as error:  # the token that is known may do for a while
                log.warning("%s; the one that was read before is used", error)
            self._read_at = time.monotonic()
        configuration.api_key[_TOKEN] = f"Bearer {self._text}"

    def _read(self) -> str:
        try:
            text = self._file.read_text().strip()
        except OSError as error:
            raise ConfigurationError(
                f"the service account's token {self._file} cannot be read ({error.strerror}): "
                "does the pod have automountServiceAccountToken: false?"
            ) from error
        if not text:
            raise ConfigurationError(f"the service account's token {self._file} is empty")
        return text
