"""The folder that manifests are written to."""

import shutil
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from levelog_base.errors import ConfigurationError


def write(files: Mapping[str, str], folder: Path, *, is_overwriting: bool) -> list[Path]:
    """Write the files, by their paths in the folder, and return where they are.

    Raises ConfigurationError if the folder holds something and is not to be overwritten, or holds what no earlier call
    can have written.
    """
    parts = sorted({PurePosixPath(name).parts[0] for name in files})
    try:
        found = sorted(path.name for path in folder.iterdir()) if folder.exists() else []
        if found and not is_overwriting:
            raise ConfigurationError(f"{folder} is not empty: give another folder, or --overwrite")
        if foreign := [name for name in found if name not in parts]:
            raise ConfigurationError(
                f"{folder} holds {', '.join(foreign)}, not made by this command: give another folder"
            )
        for part in parts:
            if (folder / part).is_dir():
                shutil.rmtree(folder / part)
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    except OSError as error:
        raise ConfigurationError(f"manifests cannot be written to {folder}: {error}") from error
    return [folder / name for name in files]
