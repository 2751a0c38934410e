"""The service account of a pod: where the API server is, and a token that kubelet replaces before it expires."""

import logging
import os
import time
from pathlib import Path
from typing import Final

from kubernetes_asyncio.client.configuration import Configuration

from levelog.errors import ConfigurationError

log = logging.getLogger(__name__)

FOLDER: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
HOST: Final = "KUBERNETES_SERVICE_HOST"
PORT: Final = "KUBERNETES_SERVICE_PORT"
_FRESH_SECONDS: Final = 60.0  # as client-go; a projected token is replaced when a fifth of its hour is left


def is_in_pod() -> bool:
    """Tell whether the environment is that of a pod."""
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
        configuration.api_key["BearerToken"] = f"Bearer {self._text}"

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
