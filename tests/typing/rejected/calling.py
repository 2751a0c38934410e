"""Mistakes in calls of effects and in Events: both type checkers report each line that is marked, and no other."""

from collections.abc import Iterator
from datetime import timedelta

from levelog import Call, Index, Intent, Level, Operator, Resource, Retry, Struct, call, event

op = Operator("webs")


class Page(Struct):
    team: str


class Web(Resource, group="example.com", version="v1", plural="webs"):
    pass


@op.effect(timeout=timedelta(seconds=10))
async def page(request: Page, idempotency_key: str) -> int:
    if request.team:
        return len(idempotency_key)
    raise Retry("busy", delay=30)  # error: a timedelta


@op.view
def told(web: Web, page: Index[str, Call[Page, int]]) -> Level[str]:
    last: list[str] = [each.request.squad for each in page[web.metadata.uid]]  # error: a Page has a team
    return Level(desired=str(last), actual="".join(each.request.team for each in page["a"] if each.result > 1))


@op.reconcile(told)
def tell(web: Web) -> Iterator[Intent]:
    yield call(page, Page("storage"), name="night")
    yield call(page, "storage")  # error: a Page
    yield call(page)  # error: no request
    yield event("Missing", "no backup", type="Error")  # error: no such type
    yield event("Missing", regarding=web, action="Check")
