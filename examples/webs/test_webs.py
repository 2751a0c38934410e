from levelog.testing import Simulate
from webs import Pod, op


def test_a_pod_that_is_deleted_by_hand_comes_back(simulate: Simulate) -> None:
    simulation = simulate(op)
    simulation.apply(
        {
            "apiVersion": "example.com/v1",
            "kind": "Web",
            "metadata": {"name": "shop", "namespace": "default"},
            "spec": {"image": "nginx:1.29", "replicas": 3},
        }
    )
    simulation.run()
    simulation.delete(Pod, "shop-1")
    simulation.run()
    assert simulation.level("pods", "default", "shop").status == "in_sync"
    assert simulation.calls["converge"] == 2
