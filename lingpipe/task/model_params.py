"""How models are named: a small record of knobs that fills the tree of an experiment.

A named model overrides knobs and nothing else:

    @register
    class Small(Multilingual):
        "A model for one evening."
        num_layers = 3

This module imports no TensorFlow; the tree, whose nodes are layers' params, is only put together
when `experiment()` is called.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lingpipe.hyperparams import Params, ParamsNameError, ParamsTypeError
from lingpipe.hyperparams.names import suggestion

if TYPE_CHECKING:
    from lingpipe.task.experiment import Experiment


class ModelParams(Params):
    """Base of all named models."""

    def experiment(self) -> Experiment.Params:
        """The tree of params that these knobs describe."""
        raise ParamsTypeError(f"{type(self).__qualname__} defines no experiment().")


def make_experiment(model: type[ModelParams], overrides: Sequence[str] = ()) -> Experiment.Params:
    """The experiment of a named model, with `PATH=VALUE` overrides.

    An override whose path is a knob of the model is set before the tree is filled; any other
    reaches into the filled tree. So a path into the tree wins over the knob that fills it, in
    whatever order they come: of `task.model.num_heads=8` and `num_heads=4`, the 8 counts in the
    model. Of two overrides with one path the last counts.

    Args:
      model: the class of a named model.
      overrides: texts of `PATH=VALUE`.

    Raises:
      ParamsTypeError: the class is no model.
      ParamsError: an override names no field or has a value of the wrong type; nothing is applied.
    """
    _refuse_other_classes(model)
    knobs = model()
    names = {field.name for field in knobs.fields()}
    knobs.override_all([item for item in overrides if _path(item) in names])
    experiment = knobs.experiment()
    others = [item for item in overrides if _path(item) not in names]
    fields = {field.name for field in experiment.fields()}
    for path in map(_path, others):
        if path.isidentifier() and path not in fields:
            raise ParamsNameError(
                f"{model.__qualname__} has no knob {path!r}, and its params no such path; "
                + suggestion(path, [*sorted(names), *sorted(fields)], noun="knobs and paths")
            )
    experiment.override_all(others)
    experiment.validate()
    return experiment


def _refuse_other_classes(model: type[Params]) -> None:
    if not issubclass(model, ModelParams):
        parents = ", ".join(f"{base.__module__}.{base.__qualname__}" for base in model.__bases__)
        raise ParamsTypeError(
            f"{model.__module__}.{model.__qualname__} is a params class, but no model: it derives "
            f"from {parents}. Derive it from a model, or from lingpipe.task.model_params."
            "ModelParams, and define experiment()."
        )


def _path(override: str) -> str:
    return override.partition("=")[0].strip()
