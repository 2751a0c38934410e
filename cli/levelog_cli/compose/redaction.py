"""The key under which values of Secrets are replaced before they are recorded."""

from levelog.errors import ConfigurationError
from levelog.redaction import Redactor
from levelog_cli.compose.backing import Backing
from levelog_cli.settings import Settings, flag, variable
from levelog_processors.program import Program


def load_redactor(settings: Settings, backing: Backing, program: Program) -> Redactor:
    """Redact with the key of the file that was given, else with the data directory's own.

    Raises ConfigurationError if the file cannot be read, or the operators read Secrets and there is no key.
    """
    file = settings.redaction_key_file
    if file is None and backing.data is not None:
        file = backing.data.redaction_key_file()
    if file is None:
        redactor = Redactor()
        if any(redactor.is_needed(resource.group_resource) for resource in program.resources.values()):
            raise ConfigurationError(
                "the operators read Secrets, whose values are recorded only as keyed hashes: give "
                f"{flag('redaction_key_file')} or set {variable('redaction_key_file')}, the same for all processes"
            )
        return redactor
    try:
        return Redactor(file.read_bytes().strip())
    except OSError as error:
        raise ConfigurationError(f"redaction key file {file} cannot be read: {error.strerror}") from error
    except ConfigurationError as error:
        raise ConfigurationError(f"redaction key file {file}: {error}") from error
