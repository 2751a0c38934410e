"""How an error of a call is told: the same text live and in a replay."""

from levelog.calls.faults import described
from levelog.effects import GiveUp, Retry


def words_for(title: str, error: Exception) -> str:
    """The words, with what is called as its users know it: `handler greet: ConnectionError: no mail server`."""
    match error:
        case GiveUp():
            words = _message(error) or "gave up"
        case Retry():
            words = _message(error) or "asks to be called again"
        case _:
            words = described(error)
    return f"{title}: {words}"


def _message(error: BaseException) -> str:
    """The message alone, as text that any database takes."""
    return described(error).removeprefix(type(error).__name__).removeprefix(": ")
