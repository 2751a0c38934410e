"""Tests of the operator, without a server: `pytest examples/sites`."""

from typing import Any

from levelog.testing import Simulate
from sites import ConfigMap, Deployment, Service, Site, op


def site(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Site",
        "metadata": {"name": "blog", "namespace": "default"},
        "spec": {"image": "nginx:1.29", "port": 8080, "pages": {"index.html": "hello"}, **spec},
    }


def test_a_site_has_its_parts_and_owns_them(simulate: Simulate) -> None:
    simulation = simulate(op)
    simulation.apply(site())
    simulation.run()
    assert simulation.level("parts", "default", "blog").status == "in_sync"
    for kind in (ConfigMap, Service, Deployment):
        [child] = simulation.objects(kind)
        assert [owner["kind"] for owner in child["metadata"]["ownerReferences"]] == ["Site"]


def test_a_field_that_somebody_changes_is_put_back(simulate: Simulate) -> None:
    simulation = simulate(op)
    simulation.apply(site(pages={"index.html": "hello"}))
    simulation.run()
    simulation.apply(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "blog-pages", "namespace": "default"},
            "data": {"index.html": "hacked"},
        }
    )
    simulation.run()
    [config] = simulation.objects(ConfigMap)
    assert config["data"] == {"index.html": "hello"}


def test_a_part_that_is_not_wanted_any_more_goes(simulate: Simulate) -> None:
    simulation = simulate(op)
    simulation.apply(site())
    simulation.run()
    simulation.apply(site(port=0))
    simulation.run()
    assert simulation.objects(Service) == []
    assert len(simulation.objects(Deployment)) == 1


def test_new_pages_change_the_template_of_the_pods(simulate: Simulate) -> None:
    simulation = simulate(op)
    simulation.apply(site())
    simulation.run()
    [before] = simulation.objects(Deployment)
    simulation.apply(site(pages={"index.html": "new"}))
    simulation.run()
    [after] = simulation.objects(Deployment)
    assert before["spec"]["template"] != after["spec"]["template"]


def test_what_the_controller_reports_leads_to_no_write(simulate: Simulate) -> None:
    simulation = simulate(op)
    simulation.apply(site())
    simulation.run()
    written = len(simulation.intents)
    for ready in (1, 2):
        simulation.patch_status(Deployment, "blog", {"readyReplicas": ready})
        simulation.run()
    assert len(simulation.intents) == written


def test_the_parts_go_with_the_site(simulate: Simulate) -> None:
    simulation = simulate(op)
    simulation.apply(site())
    simulation.run()
    simulation.delete(Site, "blog")
    simulation.run()
    assert simulation.objects(Deployment) == []
