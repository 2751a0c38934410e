"""Tests of the operator, without a server: `pytest examples/inventory`."""

from pathlib import Path
from typing import Any

import yaml

from inventory import Pod, op
from levelog.testing import Simulation

PODS: list[dict[str, Any]] = list(yaml.safe_load_all((Path(__file__).parent / "pods.yaml").read_text()))


def test_each_namespace_says_which_images_have_no_digest() -> None:
    with Simulation(op) as simulation:
        for pod in PODS:
            simulation.apply(pod)
        simulation.run()
        assert simulation.level("unpinned", "", "default").actual == {"nginx:1.29"}
        assert simulation.level("unpinned", "", "kube-system").actual == {"coredns:1.12"}
        assert simulation.level("unpinned", "", "kube-public").status == "in_sync"
        assert simulation.intents == []


def test_a_pod_that_is_gone_is_no_longer_counted() -> None:
    with Simulation(op) as simulation:
        simulation.apply(PODS[2])
        simulation.run()
        simulation.delete(Pod, "dns-0", namespace="kube-system")
        simulation.run()
        assert simulation.level("unpinned", "", "kube-system").status == "in_sync"


def test_what_pods_report_of_themselves_wakes_nothing() -> None:
    with Simulation(op) as simulation:
        simulation.apply(PODS[0])
        simulation.run()
        before = dict(simulation.calls)
        for count in range(10):
            simulation.patch_status(Pod, "web-0", {"message": f"restarted {count} times"})
            simulation.run()
        assert simulation.calls == before
