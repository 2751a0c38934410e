"""An in-process Kubernetes API for demonstrations and tests; its limits are at the top of `sandbox.py`."""

from levelog_base.errors import ConfigurationError
from levelog_sandbox.api.refusals import StatusError
from levelog_sandbox.api.urltargets import Denial
from levelog_sandbox.requestlog import LoggedRequest, RequestLog
from levelog_sandbox.sandbox import Sandbox
from levelog_sandbox.user import User

__all__ = ["ConfigurationError", "Denial", "LoggedRequest", "RequestLog", "Sandbox", "StatusError", "User"]
