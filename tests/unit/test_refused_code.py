"""Code that is refused when it is loaded, and what the error says: the one place for what users write wrongly."""

import re
from types import new_class
from typing import Any, Final

import pytest

from levelog import Operator, OperatorError, Resource

GIVEN: Final = """
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from types import FunctionType, new_class
from typing import Any, Protocol, TypedDict
from levelog import *
from levelog.levels import Levels
from levelog_processors.program import Program

HOUR, NOON, WEBS = timedelta(hours=1), datetime(2026, 1, 1, 12, tzinfo=UTC), ("example.com", "v1", "webs")

class WebSpec(Struct):
    image: str = "a"
    replicas: int = 1

class Web(Resource, group="example.com", version="v1", plural="webs"): spec: WebSpec
class WebTwo(Resource, group="example.com", version="v2", plural="webs", kind="Web"): ...
class Shop(Resource, group="example.com", version="v1", plural="shops"): ...
class Zone(Resource, group="example.com", version="v1", plural="zones", scope="Cluster"): ...
class Pod(Resource, version="v1", plural="pods"): ...
class ConfigMap(Resource, version="v1", plural="configmaps"): ...
class Nameless(Resource): ...
class Branch(External, plural="branches"): commit: str
class Page(Struct): team: str
class Settings(Struct): grace: int = 30
class Shape(TypedDict): grace: int
class Sized(Protocol): grace: int

async def handle(web: Web) -> None: ...
def page(request: Page, idempotency_key: str) -> str | None: ...
def names(pod: Pod) -> Iterator[tuple[str, str]]: yield "a", pod.metadata.name
def view(web: Web) -> Level[int]: return Level(1, 1)
def two(web: WebTwo) -> Level[int]: return Level(1, 1)
def converge(web: Web, level: Level[int]) -> Iterator[Intent]: yield from ()
def stack(web: Web) -> list[Manifest]: return []
def branches() -> list[Branch]: return []
def tips(branch: Branch) -> Iterator[tuple[str, str]]: yield branch.name, branch.commit
def bare(spec, name): ...
def of_kopf(spec, name, **_): ...

def named(name, function):
    copied = FunctionType(function.__code__, function.__globals__, name)
    copied.__annotations__ = function.__annotations__
    return copied
"""
"""What each piece of code begins with."""

REFUSED: Final = """
Program([Operator("empty")])  # nothing to run

# Options of handlers, timers and daemons.
op.timer(Web)  # needs every=: timer(every=timedelta(hours=1))
op.timer()  # needs every=: timer(every=timedelta(hours=1))
op.timer(handle)  # takes options by name, not handle: timer(every=timedelta(hours=1))
op.timer("webs", every=HOUR)(handle)  # takes options by name, not 'webs': timer(every=
op.timer(Web, handle, every=HOUR)  # takes options by name, not Web, handle: timer(every=
op.timer(int, every=HOUR)(handle)  # of=int, which is not a class derived from Resource
op.timer(Shop, every=HOUR)(handle)  # 'web' is Web, and its decorator names Shop: make it Shop, or
op.timer(every=HOUR, sharp="yes")(handle)  # sharp='yes' is neither True nor False
op.timer(every=HOUR, finalizer=True)(handle)  # timer: takes no option 'finalizer'
op.timer(every=timedelta(0))(handle)  # timer handle: every=datetime.timedelta(0) is not a time of at least
op.timer(every=HOUR, idle=timedelta(0))(handle)
# timer handle: idle=datetime.timedelta(0) is not a time of at least
op.timer(every=HOUR, recorded="no")(handle)  # timer handle: recorded='no' is neither True nor False
op.timer(every=HOUR, recorded=False, sharp=True)(handle)  # timer handle: sharp=True says nothing with recorded=False
op.timer(every=HOUR, recorded=False, idle=HOUR)(handle)  # timer handle: idle= has to remember what each object was
op.timer(every=HOUR, recorded=False, give_up_after=-HOUR)(handle)  # timer handle: give_up_after=
op.timer(every=timedelta(milliseconds=1), recorded=False)(handle)  # timer handle: every=
op.timer(every=HOUR, recorded=False, initial_delay=-HOUR)(handle)  # timer handle: initial_delay=
op.timer(every=HOUR, recorded=False)(handle); op.timer(every=HOUR, recorded=False)(handle)
# operator 'webs' has the timer 'handle' already
def ticks(web: Web) -> Any: yield web
op.timer(every=HOUR, recorded=False)(ticks)  # timer ticks: yields
op.on.event(since=NOON)(handle)  # on.event: takes no option 'since'
op.index(named("handle", names)); op.on.event(handle)  # has the index 'handle' already
def heard(web: Web, origin: int) -> None: ...
op.on.event(heard)  # event handler heard: parameter 'origin' is int: annotate it with str
op.on.resume(handle)  # takes options by name, not handle: resume(since=
op.on.resume()(handle)  # needs since=: resume(since=datetime(
op.on.resume(Web, since=None)(handle)  # needs since=: resume(since=datetime(
op.on.create(since=datetime(2026, 1, 1))(handle)
# handler handle: since=datetime.datetime(2026, 1, 1, 0, 0) is not a datetime with a time zone
op.on.create(retries=True)(handle)  # retries=True is not a number of retries
op.on.update(retries=-1)(handle)  # handler handle: retries=-1 is not a number of retries
op.timer(every=HOUR, retries=True)(handle)  # retries=True is not a number of retries
op.on.event(retries=True)(handle)  # retries=True is not a number of retries
op.daemon(retries=True)(handle)  # retries=True is not a number of retries
op.effect(retries=True)(page)  # effect page: retries=True is not a number of retries
Operator("a/b")  # operator 'a/b': its name is a text of 1 to 120 bytes without /
Operator("")  # operator '': its name is a text
Operator("ü" * 61)  # its name is a text
Operator("a" + chr(10))  # its name is a text
Operator(5)  # operator 5: its name is a text
Operator("x", retries=-1)  # operator 'x': retries=
Operator("x", backoff=timedelta(0))  # operator 'x': backoff=
Operator("x", give_up_after=60)  # operator 'x': give_up_after=
op.on.create(give_up_after=timedelta(0))(handle)
# handler handle: give_up_after=datetime.timedelta(0) is not a time above
op.on.create(give_up_after=timedelta.max)(handle)  # 999999) is not a time above 0 and up to 100 years
op.timer(every=timedelta.max)(handle)  # is not a time of at least 0:00:01 and up to 100 years
op.daemon(grace=timedelta(0))(handle)  # daemon handle: grace=datetime.timedelta(0) is not a time above 0
op.on.create(labels={"a": None})(handle)  # labels: a=None is no text, PRESENT, ABSENT or function
op.on.field("spec", labels="app=web")(handle)  # labels='app=web' is not a mapping of names to values
op.timer(every=HOUR, annotations="")(handle)  # annotations='' is not a mapping of names to values
op.index(labels=["app"])(names)  # labels=['app'] is not a mapping of names to values
op.view(annotations=["app"])(view)  # annotations=['app'] is not a mapping of names to values
op.children(Web, of=Pod, labels="app")(stack)  # labels='app' is not a mapping of names to values
op.on.create(when=True)(handle)  # when=True is not a function of the object
op.on.update(idle=HOUR)  # on.update: takes no option 'idle'
op.on.create(finalizer=True)  # on.create: takes no option 'finalizer'
op.on.create(retry=3)(handle)  # on.create: takes no option 'retry'; did you mean retries=?
op.on.field("spec", retry=2)(handle)  # on.field: takes no option 'retry'; did you mean retries=?
op.on.update(field="spec.image")
# on.update: takes no option 'field': field= is for @op.on.field("spec.image")
op.on.event(sharp=True)(handle)
# takes no option 'sharp'; there are annotations, backoff, give_up_after, labels, max_concurrency, of, retries, timeout,
op.on.create(max_concurrency=0)(handle)  # handler handle: max_concurrency=0 is not a number of calls, 1 or more
op.on.update(max_concurrency=-1)(handle)  # handler handle: max_concurrency=-1 is not a number of calls, 1 or more
op.on.delete(max_concurrency=True)(handle)  # handler handle: max_concurrency=True is not a number of calls
op.on.field("spec", max_concurrency=False)(handle)  # handler handle: max_concurrency=False is not a number of calls
op.on.resume(since=NOON, max_concurrency=2.0)(handle)  # handler handle: max_concurrency=2.0 is not a number of calls
op.timer(every=HOUR, max_concurrency="2")(handle)  # timer handle: max_concurrency='2' is not a number of calls
op.on.event(max_concurrency=[2])(handle)  # event handler handle: max_concurrency=[2] is not a number of calls
op.effect(max_concurrency=0)(page)  # effect page: max_concurrency=0 is not a number of calls
op.daemon(max_concurrency=2)(handle)  # daemon: takes no option 'max_concurrency'
op.index(label={})(named("of_pod", view))  # index: takes no option 'label'; did you mean labels=?
op.view(sharp=1)(named("pods", view))  # view: takes no option 'sharp'; there are annotations, deleting, labels,
op.children(Web, of=Web, max_deletion=1)(named("webs", view))  # children: takes no option 'max_deletion'; did you mean
op.on.update(labels={"a": "b"})(handle); op.on.field("spec.image")(handle)
# handler handle: has options in two of its decorators: give all of them to one
op.on.create(Web)(handle); op.on.create(Shop)(handle)  # handle: its decorators name two classes
op.on.create(handle); op.view(named("handle", view))
# operator 'webs' has the handler 'handle' already; each handler needs a name of its own
op.on.delete(handle); op.view(named("handle_deleted", view))  # has the handler 'handle_deleted' already
op.on.create(handle); op.view(named("handle_deleted", view)); op.on.delete(handle)
# has the view 'handle_deleted' already

# Names of decorators, and what they are given.
op.on.create(int)  # on.create: int, which is not a class derived from Resource
op.on.update("webs")  # on.update: takes a function or a class derived from Resource
op.on.delete(int)  # on.delete: int, which is not a class derived from Resource
op.on.event("webs")  # on.event: takes a function or a class derived from Resource
op.daemon(int)  # daemon: int, which is not a class derived from Resource
op.on.create(*WEBS)  # on.create: takes no 'example.com', 'v1', 'webs': write @op.on.create(
op.on.update(*WEBS, retries=1)  # plural="webs"); for files of other frameworks, see `levelog.compat`
op.on.delete(*WEBS)  # on.delete: takes no 'example.com', 'v1', 'webs': write @op.on.delete(
op.on.event(*WEBS)  # on.event: takes no 'example.com', 'v1', 'webs': write @op.on.event(
op.on.field(*WEBS, field="spec.image")  # on.field: takes no 'example.com', 'v1', 'webs': write @op.on.field(
op.daemon(*WEBS)  # daemon: takes no 'example.com', 'v1', 'webs': write @op.daemon(
op.on.validate(handle)  # op.on.validate: levelog serves no webhooks: write the rule into the
op.on.mutate(Web)  # op.on.mutate: levelog serves no webhooks: write defaults into the definition
op.on.timer(every=HOUR)  # op.on.timer: write @op.timer
op.on.created(Web)  # op.on.created: did you mean @op.on.create?
op.on.everything(Web)  # there is no such decorator; there are cleanup, create, delete, event, field, resume, startup
op.index(partial(names))  # index: takes a function with a name, not functools.partial(
op.view(partial(view))  # view: takes a function with a name
op.view(view); op.reconcile(view)(partial(converge))  # reconcile function: takes a function with a name
op.children(Web, of=Pod)(partial(stack))  # children: takes a function with a name
op.effect(partial(page))  # effect: takes a function with a name
op.effect(Page)  # effect: takes a function, not the class Page
op.source(Branch, every=HOUR)(partial(branches))  # source: takes a function with a name
op.source(Branch, every=HOUR)(lambda: [])  # source: takes a function with a name
op.on.startup(partial(handle))  # startup hook: takes a function with a name
op.on.create(partial(handle, web=1))  # handler: takes a function with a name, not functools.partial(
op.on.field(handle)  # on.field: <function

# Functions of handlers.
op.on.create(of_kopf)  # def of_kopf(web: Web); for files of other frameworks, see `levelog.compat`
op.timer(every=HOUR)(of_kopf)  # timer of_kopf:
op.on.create(bare)  # 'spec' is not annotated; it has to be a class derived from Resource; for files of
def old(web: Web, old): ...
op.on.update(old)  # handler old: parameter 'old' is not annotated: annotate it with Web | None
def patches(web: Web, patch: str): ...
op.on.update(patches)
# handler patches: parameter 'patch' is str; a function of this kind may take its object first, reas
def returns(web: Web) -> list[Intent] | None: ...
op.on.create(returns)  # handler returns: is annotated to return intents: it has to yield them, by itself
def yields(web: Web) -> Iterator[Intent]: yield
op.on.create(yields); Program([op])  # handler yields: yields intents; say in one of its decorators what they write
op.on.create(writes={ConfigMap: ["apply"]})(handle); Program([op])
# handler handle: writes= is for handlers that yield intents, and it does not
async def daemon(web: Web) -> AsyncIterator[int]: yield 1
op.daemon(daemon)  # daemon daemon: yields; save what it has to know by daemon.save(
op.on.field("spec.nonesuch")(handle)
# handler handle: spec.nonesuch: WebSpec has no field that JSON names 'nonesuch'; it has image, rep
op.on.field("spec.image.tag")(handle)  # spec.image.tag: what is before 'tag' has no parts that are compared
def plain(web: Mapping[str, Any]): ...
op.on.field("status.phase", of=Web)(plain)
# handler plain: status.phase is not compared in plain objects: annotate with a class that has
op.on.field("metadata.name")(handle)  # metadata.name is not compared: of the metadata, labels and annotations are
op.on.update(value=1)(handle)  # takes no option 'value'
op.on.field("spec.containers[0]")  # on.field: 'spec.containers[0]' is no field: write it as 'spec.image'

# Finalizers.
op.remove_finalizer(Web); op.on.delete(finalizer=True)(handle); Program([op])
# op.remove_finalizer(Web): handle needs the finalizer on these objects
op.on.delete(finalizer=True)(handle); op.remove_finalizer(Web); Program([op])
# op.remove_finalizer(Web): handle needs the finalizer on these objects
op.on.delete(finalizer="yes")(handle)  # handler handle: finalizer='yes' is neither True nor False
op.remove_finalizer(Branch)  # op.remove_finalizer: Branch is external
op.remove_finalizer("webs")  # op.remove_finalizer: webs, which is not a class derived from Resource
op.remove_finalizer(Resource)  # op.remove_finalizer: Resource does not say which resource it is
Operator("my webs").on.delete(finalizer=True)(handle)
# its finalizer would be 'levelog/my webs', which the API refuses

# Hooks.
op.on.startup(handle)  # startup hook handle: parameter 'web' is Web;
def looks(nothing: LiveIndex[str, str]): ...
op.index(names); op.on.startup(looks)  # 'nothing' asks for an index that is not defined above it; known are: n
def goes_on() -> Iterator[None]: yield
op.on.cleanup(goes_on)  # cleanup hook goes_on: yields; a hook runs to its end
op.on.startup(timeout=3)(named("begins", lambda: None))  # timeout=3 is not a time above 0

# Views.
def untyped(web: Any) -> Level[int]: ...
op.view(untyped)  # untyped: parameter 'web' is Any; it has to be a class derived from Resource
def nameless(web: Nameless) -> Level[int]: ...
op.view(nameless)  # nameless: Nameless does not say which resource it is
def gives_none(web: Web) -> None: ...
op.view(gives_none)  # gives_none: returns None; it has to be Level[T]
def gives(web: Web): ...
op.view(gives)  # gives: is not annotated with what it returns; it has to be Level[T]
def leveled(web: Web, level: Level[int]) -> Level[int]: ...
op.view(leveled)  # leveled: parameter 'level' is Level[int]; view functions compute from its parent
def plain(web: Mapping[str, Any]) -> Level[int]: ...
op.view(plain)  # parameter 'web' is Mapping[str, Any], which does not say which objects are meant
op.view(of=int)(view)  # of=int, which is not a class derived from Resource
op.view(of=Pod)(view)  # view: parameter 'web' is Web, and its decorator names Pod: make it Pod, or Mapping
def valued(web: Web, names: Index[str, int]) -> Level[int]: ...
op.index(names); op.view(valued)  # parameter 'names' is Index[str, int], but the index names has
def keyed(web: Web, names: Index[int, str]) -> Level[int]: ...
op.index(names); op.view(keyed)  # parameter 'names' is Index[int, str], but the index names has keys of type str
def numbered(web: Web, number: int) -> Level[int]: ...
op.view(numbered)  # numbered: parameter 'number' is int
def unknown(web: Web, unknown: Index[str, str]) -> Level[int]: ...
op.view(unknown)  # parameter 'unknown' asks for an index that is not defined above it
async def waits(web: Web) -> Level[int]: ...
op.view(waits)  # waits: is async
def when(web: Web, when: datetime) -> Level[int]: ...
op.view(when)  # view when: parameter 'when' is datetime; a function of this kind may take
def when(web: Web, when: datetime) -> Level[int]: ...
Operator("shop", settings=Settings()).view(when)  # logger: logging.Logger and settings: Settings
def settled(web: Web, settings: Settings) -> Level[int]: ...
op.view(settled)  # and settings (annotated with the class of Operator(settings=…))
def many(web: Web, *others: int) -> Level[int]: ...
op.view(many)  # view many: parameter '*others: int' cannot be given by name and type
def unannotated(web: Web, settings) -> Level[int]: ...
op.view(unannotated)  # parameter 'settings' is not annotated;
Operator("shop", settings=object())  # operator 'shop': settings of class object have no JSON form
op.view(timeout=timedelta(seconds=11))(view)  # is above 10 s, and its process does nothing else
op.view(named("levels", view)); Program([op])  # named 'levels' would hide levelog's own table
op.view(view); op.view(two); op.resources()  # versions v1 and v2
other = Operator("other"); op.view(view); other.view(two); Program([op, other])
# operator 'other' reads webs.example.com in version v2, another handler in v1
other = Operator("webs"); op.view(view); other.view(view); Program([op, other])  # two operators are named 'webs'
op.index(names); op.index(names)  # names: operator 'webs' has the index 'names' already; each handler

def settled(web: Web, settings: Shape) -> Level[int]: ...
Operator("shop", settings=Settings()).view(settled)  # parameter 'settings' is Shape; a function of this kind may take
def settled(web: Web, settings: Sized) -> Level[int]: ...
Operator("shop", settings=Settings()).view(settled)  # parameter 'settings' is Sized; a function of this kind may take
def shaped(web: Web, names: Index[str, Shape]) -> Level[int]: ...
op.index(names); op.view(shaped)  # parameter 'names' is Index[str, Shape], but the index names has
def quoted(web: "WEBS.nonesuch") -> Level[int]: ...
op.view(quoted)  # quoted: an annotation cannot be read: 'tuple' object has no attribute 'nonesuch'
def quoted(web: "Index[str") -> Level[int]: ...
op.view(quoted)  # quoted: an annotation cannot be read: Forward reference must be an expression
def quoted(web: "nonesuch") -> Level[int]: ...
op.view(quoted)  # quoted: an annotation cannot be read: name 'nonesuch' is not defined
class Either(Resource, version="v1", plural="boths"): spec: Page | Settings
def either(box: Either) -> Level[int]: ...
op.view(either)  # class Either: If a type union contains multiple Struct types
op.view(deleting="no")(view)  # view view: deleting='no' is neither True nor False
Operator("shop", configures_clients="no")  # operator 'shop': configures_clients='no' is neither True nor False
Operator("shop", settings=(given := {}, given.update(a=given)))  # settings of class tuple have no JSON form
op.conditions(Web, name="web/conditions")  # conditions: name='web/conditions' is no name of a function
op.conditions(Web, name=5)  # conditions: name=5 is no name of a function
op.view(labels={5: "a"})(view)  # labels: 5='a' is no text

# What views look up.
op.view(reads=Pod)(view)  # view: reads=[Pod], but no parameter takes them
op.view(levels_of=Pod)(view)  # view: levels_of=[Pod], but no parameter takes them
op.view(reads=[Pod])(view)  # view: reads=[Pod], but no parameter takes them
def alone(web: Web, objects: Objects) -> Level[int]: ...
op.view(alone)  # alone: parameter 'objects' is Objects, but the view does not say which
def alone(web: Web, objects: Objects) -> Level[int]: ...
op.view(reads=[Page])(alone)  # reads=Page, which is not a class derived from Resource
def reads(web: Web, objects: Objects) -> Level[int]: ...
op.view(reads=[Pod])(reads); op.view(reads=[new_class("Pod", (Pod,), {"plural": "pods"})])(named("again", reads))
# two classes named Pod, of pods and of pods: rename one
def taken(web: Web, pods: Index[str, str], objects: Objects) -> Level[int]: ...
op.view(reads=[Pod])(taken)  # known are: none
op.view(levels_of=[Web])(view)  # add levels: Levels
def shown(web: Web, levels: Levels) -> Level[int]: ...
op.view(levels_of=[Pod])(shown); Program([op])  # levels_of= names Pod, of which operator 'webs' has no view
def shown(web: Web, levels: Levels) -> Level[int]: ...
op.view(levels_of=["webs/shown"])(shown); Program([op])  # leads in a circle, so that none would be decided on first
def shown(web: Web, levels: Levels) -> Level[int]: ...
op.view(levels_of=["other/two"])(shown); other = Operator("other")
other.view(levels_of=["other/three"])(named("two", shown)); other.view(levels_of=["webs/shown"])(named("three", shown))
Program([op, other])  # webs/shown looks up other/two looks up other/three looks up webs/shown
def shown(web: Web, levels: Levels) -> Level[int]: ...
op.view(view); op.view(levels_of=["webs/views"])(shown); Program([op])
# names 'webs/views', operator webs has webs/shown, webs/view
def shown(web: Web, levels: Levels) -> Level[int]: ...
op.view(levels_of=["shops/size"])(shown); Program([op])
# names 'shops/size', but no operator shops is loaded with it: levels of other applications
def shown(web: Web, levels: Levels) -> Level[int]: ...
op.view(levels_of=["size"])(shown); Program([op])
# names 'size': write operator/view, as `levelog levels` shows it, or a class
op.conditions(Web, also=["ready"])  # conditions takes the function of a view, not 'ready': also=[ready]

# Indices.
def reads(pod: Pod, names: Index[str, str]) -> dict[str, str]: ...
op.index(reads)  # index functions compute from one object alone, so that reads never go in a circle
def pair(pod: Pod, other: Pod) -> dict[str, str]: ...
op.index(pair)  # index pair:
def text(pod: Pod) -> str: ...
op.index(text)  # index text: is annotated to return str; it has to yield pairs
def aged(web: Web, now: datetime) -> dict[str, str]: ...
op.index(aged)  # index aged: parameter 'now' is datetime;
op.index(max_entries=0)(names)  # index names: max_entries=0 is not a number from 1 to 32,767
op.index(max_entries=1.5)(names)  # index names: max_entries=1.5 is not a number from 1 to 32,767
op.index(max_entries=True)(names)  # index names: max_entries=True is not a number from 1 to 32,767
op.index(max_entries=32_768)(names)  # index names: max_entries=32768 is not a number from 1 to 32,767
op.index(errors="warn")(names)  # errors='warn' is none of "hold", "block" and "ignore"
op.index(expires=timedelta(0))(names)  # index names: expires=datetime.timedelta(0) is not a time above 0
op.index(expires=-HOUR)(names)  # is not a time above 0
op.index(expires=60)(names)  # index names: expires=60 is not a time above 0

# Reconcile functions.
op.reconcile(view)  # view is not a view of the operator 'webs'
op.reconcile("view")  # reconcile takes the function of a view, not
op.reconcile([view])  # reconcile takes the function of a view, not
op.view(view); op.reconcile(view)(converge); op.reconcile(view)(converge)  # reconciled by 'converge' already
op.index(names); op.view(view); op.reconcile(view)(named("names", converge))  # has the index 'names' already
op.view(view); op.reconcile(view)(converge); op.view(named("converge", view))
# has the reconcile function 'converge' already
def of_texts(web: Web, level: Level[str]) -> Iterator[Intent]: yield
op.view(view); op.reconcile(view)(of_texts)
# of_texts: parameter 'level' is Level[str], but the view view returns Level[int]
op.view(view); op.reconcile(view, writes=[Pod])(converge)
# it says of each class which intents are yielded: {Pod: ["apply"]}
op.view(view); op.reconcile(view, writes={Page: ["apply"]})(converge)
# which is not a class derived from Resource
op.view(view); op.reconcile(view, writes={Resource: ["apply"]})(converge)
# names Resource does not say which resource it is: class
op.view(view); op.reconcile(view, writes={Pod: "apply"})(converge)  # gives Pod 'apply', which is not a list of verbs
op.view(view); op.reconcile(view, writes={Pod: []})(converge)  # gives Pod [], which is not a list of verbs
op.view(view); op.reconcile(view, writes={Pod: ["update"]})(converge)
# gives Pod the verb 'update'; there are: apply, create, patch
op.view(view); op.reconcile(view, writes={Pod: ["anywhere"]})(converge)  # says of Pod where, and not what

# Children.
op.children(Web, of=[])(stack)  # children stack: of=[] names no class
op.children(Web, of=[Pod, Pod])(stack)  # of= names pods twice
op.children(Web, of=Zone)(stack)  # Zone has no namespace, so that a Web, which has one, cannot own it
op.children(Web, of="pods")(stack)  # pods, which is not a class derived from Resource
op.children(Web, of=5)(stack)  # children stack: 5, which is not a class derived from Resource
op.children(Web, of=Pod, force="no")(stack)  # children stack: force='no' is neither True nor False
op.children(Web, of=[Pod, str])(stack)  # str, which is not a class derived from Resource
op.children(Zone, of=Pod)(stack)  # the first parameter is Web; it has to be the parent, Zone
op.children(Web, of=Pod, max_deletions=-1)(stack)  # is no number of children
op.children(Web, of=Pod, max_deletions=True)(stack)  # is no number of children
op.children(Web, of=Pod, max_deletions="3")(stack)  # is no number of children
def asking(web: Web) -> Iterator[Intent]: yield
op.children(Web, of=Pod)(asking)  # children asking: is annotated to return intents: return manifests
def timed(web: Web, now: datetime) -> Manifest: ...
op.children(Web, of=Pod)(timed)  # children timed: parameter 'now' asks for the time, but nothing calls
async def later(web: Web) -> Manifest: ...
op.children(Web, of=Pod)(later)  # children later: is async
def plain(web: Mapping[str, Any]) -> Manifest: ...
op.children(Web, of=Pod)(plain)  # children plain: the first parameter is
op.children(Web, of=Pod)(stack); op.children(Web, of=[Shop, Pod])(named("second", stack))
# children second: Pod of a Web are children of 'stack' already
other = Operator("other")
op.children(Web, of=Pod)(stack); other.children(Web, of=Pod)(named("second", stack)); Program([op, other])
# children second: Pod of a Web are children of 'stack' already

# Effects.
def nothing(): ...
op.effect(nothing)  # effect nothing: takes no parameter; the first one is its request
def open_request(request): ...
op.effect(open_request)  # effect open_request: parameter 'request' is not annotated; it is the request
def asks(request: Callable[[], None]): ...
op.effect(asks)  # effect asks: parameter 'request' is Callable[[], None], which has no JSON form
def gives(request: Page) -> type: ...
op.effect(gives)  # effect gives: returns type, which has no JSON form
def levels(request: Page, level: Level[int]): ...
op.effect(levels)
# parameter 'level' is Level[int]; a function of this kind may take its request first, idempotency_key
def texts(request: Page, key: str): ...
op.effect(texts)  # parameter 'key' is str; a function of this kind may take
def generates(request: Page) -> Iterator[int]: yield 1
op.effect(generates)  # effect generates: yields; an effect runs to its end and returns its result
op.effect(timeout=None)(page)  # effect page: timeout=None is not a time above 0
op.effect(timeout=timedelta(0))(page)  # effect page: timeout=datetime.timedelta(0) is not a time above 0
def told(web: Web, page: Index[str, Call[Settings, int]]) -> Level[int]: ...
op.effect(page); op.view(told)  # view told: parameter 'page' is Index[str, Call[Settings, int]], but
op.index(named("page", names)); op.effect(page)  # has the index 'page' already

# Sources, and records of theirs.
op.index(tips); Program([op])  # reads Branch, which no source gives
op.source(Branch, every=HOUR)(branches); op.source(Branch, every=HOUR)(named("more", branches))
# given by 'branches' already
a, b = Operator("a"), Operator("b")
a.source(Branch, every=HOUR)(branches); b.source(Branch, every=HOUR)(branches); a.index(tips); Program([a, b])
# two sources, a/branches and b/branches
op.source(Branch)(branches)  # source branches: say how often it is asked
async def once() -> list[Branch]: ...
op.source(Branch)(once)  # source once: say how often it is asked
op.source(Branch, every=30)(branches)  # every=30 is not a time above 0
op.source(Branch, every=timedelta(0))(branches)  # is not a time above 0
op.source(Branch, every=HOUR, timeout=timedelta(0))(branches)  # timeout=
op.source(Web, every=HOUR)(branches)  # source branches: Web is not a class of external records
op.source(External, every=HOUR)(branches)  # source branches: External is not a class of external records
def asking(branch: Branch) -> list[Branch]: ...
op.source(Branch, every=HOUR)(asking)  # source asking: parameter 'branch' is Branch
delete(Branch, "main")  # Branch is External
patch(Branch, "main", {})  # Branch is External
delete(Branch(name="a", commit=""))  # Branch is External
op.view(view); op.reconcile(view, writes={Branch: ["delete"]})(converge)  # Branch is External
op.children(Web, of=Branch)(stack)  # Branch is External
def of_branches(branch: Branch) -> Level[int]: ...
op.view(of_branches)  # its parent 'branch': Branch is External

# Classes.
class Box(Resource, group="example.com", version="v1", plural="boxes", sharp=True): ...
# class Box: takes no option 'sharp'
class Box(Resource, version="v1", plural="boxes", scope="Global"): ...
# class Box: scope is "Namespaced" or "Cluster", not 'Global'
class Web_Two(Resource, version="v1", plural="webs"): ...
# class Web_Two: kind='Web_Two' is not as the API names resources: of letters, digits and -, beginning with a letter
class Accented(External, plural="é"): ...
# class Accented: plural='é' has to be of a-z, 0-9 and -
class Grouped(External, plural="branches", group="a.com"): ...
# group= is for classes of the Kubernetes API
class Dotted(External, plural="a.b"): ...
# plural='a.b' has to be of a-z
class Own(External, plural="owns"): metadata: dict[str, str]
# metadata is levelog's own
"""


NAMES: Final[dict[str, Any]] = {}
exec(GIVEN, NAMES)


def cases() -> list[tuple[str, str]]:
    """Code, up to the line that ends with what is said of it."""
    found: list[tuple[str, str]] = []
    code: list[str] = []
    for line in REFUSED.splitlines():
        last, mark, says = line.partition("# ")
        if last.strip() or not mark:
            code.append(last.rstrip())
        if mark and any(code):
            found.append(("\n".join(code), says))
            code = []
    return found


@pytest.mark.parametrize(("code", "says"), cases())
def test_it_is_refused_and_the_error_says_what_to_write(code: str, says: str) -> None:
    with pytest.raises(OperatorError, match=re.escape(says)):
        exec(code, {**NAMES, "op": Operator("webs")})


WRONG_LABELS = ["Webs", "webs.example.com", "my_webs", "-webs", "webs-", "1webs", "", 7, "w" * 64]
WRONG_GROUPS = ["Example.com", "example..com", ".com", "example.", "my_group", "-a.com", "a-.com", "a/b", "a\n", None]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *((option, each) for option in ("plural", "version") for each in WRONG_LABELS),
        *(("group", each) for each in WRONG_GROUPS),
    ],
)
def test_a_class_under_a_name_that_no_api_can_serve_is_refused(option: str, value: Any) -> None:
    options = {"group": "example.com", "version": "v1", "plural": "webs"} | {option: value}
    says = rf"^class Web: {option}={re.escape(repr(value))} is not as the API names"
    with pytest.raises(OperatorError, match=says):
        new_class("Web", (Resource,), options)


@pytest.mark.parametrize("group", ["", "apps", "example.com", "a-1.b.c", "rbac.authorization.k8s.io"])
def test_a_group_that_an_api_can_serve_is_taken(group: str) -> None:
    made: type[Resource] = new_class("Web", (Resource,), {"group": group, "version": "v1alpha1", "plural": "webs"})
    assert made.resource_type.group == group
