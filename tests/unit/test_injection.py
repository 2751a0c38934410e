"""What functions may ask for by name and type, and what is said of a parameter that nothing is given to."""

import logging
from collections.abc import Iterator
from datetime import UTC, datetime

from levelog import Index, Intent, Level, Operator, Struct
from levelog.handlers.injection import Given
from rigs.kinds import Web


class Settings(Struct):
    image: str = "nginx"
    grace: int = 30


def names(web: Web, settings: Settings, logger: logging.Logger) -> Iterator[tuple[str, str]]:
    yield settings.image, web.metadata.name


def view(web: Web, names: Index[str, str], now: datetime, settings: Settings, logger: logging.Logger) -> Level[int]:
    return Level(1, 1)


def converge(web: Web, level: Level[int], now: datetime, settings: Settings, logger: logging.Logger) -> list[Intent]:
    return []


def test_each_kind_of_function_gets_what_it_asks_for() -> None:
    settings = Settings()
    op = Operator("shop", settings=settings)
    op.index(names)
    op.view(view)
    op.reconcile(view)(converge)
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    level = Level(1, 1)
    index, of_view, reconcile = op.indices["names"], op.views["view"], op.reconcilers["view"]
    assert [parameter.name for parameter in of_view.indices] == ["names"]
    assert of_view.given.arguments({Given.NOW: noon}) == {
        "now": noon,
        "settings": settings,
        "logger": logging.getLogger("levelog.operator.shop.view"),
    }
    assert set(index.given.arguments({})) == {"settings", "logger"}
    given = reconcile.given.arguments({Given.NOW: noon, Given.LEVEL: level})
    assert given["level"] is level
    assert set(given) == {"level", "now", "settings", "logger"}
    body = b'{"metadata": {"name": "a", "uid": "u"}}'
    assert index.entries(body) == [("nginx", "a")]


def takes_settings(web: Web, settings: Settings) -> Level[int]:
    return Level(1, 1)


def fingerprints(settings: Settings) -> list[str]:
    op = Operator("shop", settings=settings)

    def plain(web: Web) -> Level[int]:
        return Level(1, 1)

    op.view(plain)
    op.index(names)
    op.view(takes_settings)
    return [op.views["plain"].fingerprint, op.views["takes_settings"].fingerprint, op.indices["names"].fingerprint]


def test_settings_are_part_of_the_fingerprint_of_what_takes_them() -> None:
    plain, view_before, index_before = fingerprints(Settings())
    assert fingerprints(Settings()) == [plain, view_before, index_before]
    other, view_after, index_after = fingerprints(Settings(image="httpd"))
    assert other == plain
    assert view_after != view_before
    assert index_after != index_before
