"""Costs add up."""

from lingpipe.base.cost import Cost, total_cost
from lingpipe.base.spec import Spec


def test_costs_add_up_and_the_outputs_are_those_given() -> None:
    outputs = {"x": Spec((2, 3))}
    total = total_cost(Cost(5, Spec(()), 10), Cost(7, None, 1), outputs=outputs)
    assert total == Cost(12, outputs, 11)


def test_no_layer_costs_nothing() -> None:
    assert total_cost(outputs=Spec((1,))) == Cost(0, Spec((1,)), 0)
