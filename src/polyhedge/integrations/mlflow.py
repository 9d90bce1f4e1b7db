"""Deciders as MLflow models: the model file travels inside, and is read without running code from it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from polyhedge._support.files import replace_file
from polyhedge.estimator import RobustDecider, load

# What MLflow runs when it loads the model: a text of its own, because it takes no function without a pickle.
_SCRIPT = """\
from mlflow.models import set_model
from polyhedge.integrations.mlflow import decider_model

set_model(decider_model())
"""


def save_model(decider: RobustDecider, path: str | Path, **options: Any) -> None:
    """Write a fitted decider as an MLflow model: a folder for `mlflow.pyfunc.load_model` and `mlflow models serve`.

    Parameters
    ----------
    decider : fitted.
    path : folder to write; it must not exist.
    options : handed to `mlflow.pyfunc.save_model`, such as `signature` or `pip_requirements`.

    Notes
    -----
    `predict(frame)` of the loaded model gives `decider.decide(frame).to_frame()`: decisions, bounds, status and notes.
    The folder holds the model file and a few lines of Python, and no pickle. The predictor must be one that `fit`
    makes, or "precomputed". Needs `pip install 'polyhedge[mlflow]'`.
    """
    _written(decider, lambda pyfunc, wrapped: pyfunc.save_model(path=str(path), **wrapped, **options))


def log_model(decider: RobustDecider, name: str = "decider", **options: Any) -> Any:
    """Log a fitted decider to the active MLflow run, and return what MLflow knows of it.

    Parameters
    ----------
    decider : fitted.
    name : of the model in the run.
    options : handed to `mlflow.pyfunc.log_model`, such as `registered_model_name` or `signature`.
    """
    return _written(decider, lambda pyfunc, wrapped: pyfunc.log_model(name=name, **wrapped, **options))


def decider_model() -> Any:
    """What MLflow keeps in memory: reads the model file next to it, and answers rows with frames of decisions."""
    from mlflow.pyfunc import PythonModel

    class DeciderModel(PythonModel):
        decider: RobustDecider

        def load_context(self, context: Any) -> None:
            self.decider = load(context.artifacts["model"])

        # MLflow would take annotations for the schema of the rows.
        def predict(self, context, model_input, params=None):  # type: ignore[no-untyped-def]
            return self.decider.decide(model_input).to_frame("pandas")

    return DeciderModel()


def _written(decider: RobustDecider, write: Callable[[Any, dict[str, Any]], Any]) -> Any:
    try:
        from mlflow import pyfunc
    except ImportError as error:
        raise ImportError("MLflow models need MLflow: pip install 'polyhedge[mlflow]'.") from error
    with TemporaryDirectory() as folder:
        file, script = Path(folder, "model.polyhedge"), Path(folder, "decider.py")
        decider.save(file)
        replace_file(script, _SCRIPT.encode())
        return write(pyfunc, {"python_model": str(script), "artifacts": {"model": str(file)}})
