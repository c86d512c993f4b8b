"""Activations against their formulas."""

import math

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.layers.activation import Activation, activate

FORMULAS = {
    Activation.relu: lambda x: max(x, 0.0),
    Activation.gelu: lambda x: x * 0.5 * (1 + math.erf(x / math.sqrt(2))),
    Activation.swish: lambda x: x / (1 + math.exp(-x)),
}


@pytest.mark.parametrize("activation", list(Activation))
def test_each_activation_follows_its_formula(activation: Activation) -> None:
    inputs = np.linspace(-4, 4, 33)
    expected = [FORMULAS[activation](x) for x in inputs]
    np.testing.assert_allclose(activate(activation, tf.constant(inputs)), expected, rtol=1e-6)
