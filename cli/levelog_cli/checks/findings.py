"""One finding of the doctor."""

import sys
from enum import StrEnum
from typing import Final

from msgspec import Struct

from levelog.escapes import escaped
from levelog_base.errors import LevelogError
from levelog_base.wire.objects import Cluster
from levelog_cli.printing.lines import print_line
from levelog_cli.printing.tables import coloured, folded


class Found(StrEnum):
    """The state of one thing."""

    OK = "ok"
    NOTE = "note"
    """It may be wrong, which cannot be seen from here, or matters to some operators only."""
    WRONG = "wrong"


_INDENT: Final = 20


class Finding(Struct, frozen=True, kw_only=True):
    """One line: how it is, and how to mend it where it is not well."""

    found: Found
    subject: str
    text: str
    mend: str = ""
    cluster: Cluster | None = None
    """Which cluster it is, for those who come after."""

    @classmethod
    def ok(cls, subject: str, text: str, *, cluster: Cluster | None = None) -> "Finding":
        """It is as it has to be."""
        return cls(found=Found.OK, subject=subject, text=text, cluster=cluster)

    @classmethod
    def note(cls, subject: str, text: str, mend: str = "") -> "Finding":
        """Somebody has to look."""
        return cls(found=Found.NOTE, subject=subject, text=text, mend=mend)

    @classmethod
    def wrong(cls, subject: str, text: str | LevelogError, mend: str = "") -> "Finding":
        """It has to be mended; an error says itself how."""
        return cls(found=Found.WRONG, subject=subject, text=str(text), mend=mend)


def finding_plain(finding: Finding) -> dict[str, str]:
    """The finding as a JSON object; without `mend` where there is nothing to mend."""
    mend = {"mend": " ".join(finding.mend.split())} if finding.mend else {}
    return {"found": finding.found, "subject": finding.subject, "text": " ".join(finding.text.split()), **mend}


def print_finding(finding: Finding) -> None:
    """Print it to stdout, folded to the terminal, with a line for how to mend it."""
    begin = f"{finding.found:<6} {escaped(finding.subject):<12} "
    first, *more = folded(" ".join(finding.text.split()), begin)
    sys.stdout.write(f"{escaped(first).replace(finding.found, coloured(finding.found), 1)}\n")
    print_line(*more, *folded(finding.mend, f"{'':<{_INDENT}}→ "))
    sys.stdout.flush()
