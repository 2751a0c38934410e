"""Why there are no records of something, and what to ask for in its place."""

from collections.abc import Sequence
from difflib import get_close_matches

from levelog.wire.objects import GroupResource
from levelog_cli.compose.recordsources import RecordSource
from levelog_history.selection import Selected


async def nothing_of(source: RecordSource, selected: Sequence[Selected], selector: str = "") -> str:
    """A sentence that says that there is no record of what was selected, and why that may be."""
    what = " or ".join(map(str, selected)) + (f" with labels {selector}" if selector else "")
    nothing = f"{source.name} of cluster {source.cluster} holds no record of {what}"
    for resource in dict.fromkeys(each.resource for each in selected):
        if why := await unread(source, resource):
            return f"{nothing}: {why}"
    for each in selected:
        if each.namespace and not each.name:
            return (
                f"{nothing}, which means all {each.resource} of a namespace {each.namespace}: one object is "
                f"{each.resource}/NAMESPACE/NAME, with _ for no namespace"
            )
    return f"{nothing}: there was none while {source.name} was written"


async def unread(source: RecordSource, resource: GroupResource) -> str:
    """What to say of a resource of which there are no records; nothing if there are, or that is not known."""
    held = await source.resources()
    name = str(resource)
    if not held or name in held:
        return ""
    return f"recorded is what the operators read: {', '.join(held)}{_meant(name, held)}"


def _meant(name: str, held: Sequence[str]) -> str:
    """The resource that is written like that: without its group, in the singular, or with a letter that is wrong."""
    plain = [each for each in held if each.partition(".")[0] in (name, f"{name}s", f"{name}es")]
    close = plain or get_close_matches(name, held, n=1)
    return f" (did you mean {close[0]}?)" if close else ""
