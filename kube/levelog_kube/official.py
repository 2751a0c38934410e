"""The parts of kubernetes_asyncio that levelog uses, without its models: 34 MB and a third of a second less.

The library's packages import every model with any of their modules. Empty packages stand in for them while this module
is loaded; an `import kubernetes_asyncio` of your own gets the library whole.
"""

import sys
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final

_NAME: Final = "kubernetes_asyncio"


@contextmanager
def _empty_packages() -> Generator[None]:
    """Stand in for the library's packages, and forget all that was imported under their names."""
    spec = find_spec(_NAME)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"No module named {_NAME!r}", name=_NAME)
    folder = Path(spec.submodule_search_locations[0])
    try:
        for name in (_NAME, f"{_NAME}.client", f"{_NAME}.config"):
            package = sys.modules[name] = ModuleType(name)
            package.__path__ = [str(folder.joinpath(*name.split(".")[1:]))]
        # The loader of kubeconfig files imports these two from the package; it calls only the first.
        client = {"Configuration": import_module(f"{_NAME}.client.configuration").Configuration, "ApiClient": None}
        vars(sys.modules[f"{_NAME}.client"]).update(client)
        yield
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == _NAME]:
            del sys.modules[name]


if TYPE_CHECKING or _NAME in sys.modules:
    from kubernetes_asyncio.client.configuration import Configuration
    from kubernetes_asyncio.client.rest import RESTClientObject
    from kubernetes_asyncio.config.kube_config import load_kube_config
else:
    with _empty_packages():
        from kubernetes_asyncio.client.configuration import Configuration
        from kubernetes_asyncio.client.rest import RESTClientObject
        from kubernetes_asyncio.config.kube_config import load_kube_config

__all__ = ["Configuration", "RESTClientObject", "load_kube_config"]
