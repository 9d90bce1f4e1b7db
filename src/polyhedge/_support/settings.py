"""An estimator whose settings may be frozen dataclasses."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from html import escape
from typing import Any, Self

from sklearn.base import BaseEstimator


class SettingsEstimator(BaseEstimator):
    """A scikit-learn estimator that reaches into dataclasses: `learner__n_facets` is a field of the setting `learner`.

    A dataclass with an attribute `written`, a problem, is no setting.
    """

    def summary(self) -> str:
        """The fitted estimator in words, a line each."""
        raise NotImplementedError

    def __str__(self) -> str:
        """The summary of a fitted estimator; before, its settings."""
        return self.summary() if hasattr(self, "model_") else repr(self)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        """What a notebook shows: the summary of a fitted estimator; before, scikit-learn's picture of its settings."""
        if not hasattr(self, "model_"):
            shown: dict[str, str] = super()._repr_mimebundle_(**kwargs)
            return shown
        head, *lines = self.summary().splitlines()
        style = 'style="text-align: left"'
        cells = "".join(
            f"<tr><th {style}>{escape(line[2:12].strip())}</th><td {style}>{escape(line[13:])}</td></tr>"
            for line in lines
        )
        return {"text/plain": repr(self), "text/html": f"<p>{escape(head)}</p><table>{cells}</table>"}

    def _repr_html_(self) -> str:
        return self._repr_mimebundle_()["text/html"]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The settings by name; with `deep` also those of learner, policy, calibrator and predictor."""
        settings: dict[str, Any] = super().get_params(deep)
        if deep:
            for name, part in super().get_params(deep=False).items():
                settings |= {f"{name}__{field}": getattr(part, field) for field in _fields_of(part)}
        return settings

    def set_params(self, **params: Any) -> Self:
        """Set the settings `params` by name; a learner, policy or calibrator is replaced, never changed."""
        inner: dict[str, dict[str, Any]] = {}
        for key in [key for key in params if "__" in key]:
            name, _, field = key.partition("__")
            part = params.get(name, getattr(self, name, None))
            known = _fields_of(part)
            if known and field not in known:
                raise ValueError(
                    f"{type(part).__name__} has no setting {field!r}. Its settings are: {', '.join(known)}."
                )
            if known:
                inner.setdefault(name, {})[field] = params.pop(key)
        super().set_params(**params)
        for name, changed in inner.items():
            setattr(self, name, replace(getattr(self, name), **changed))
        return self


def _fields_of(part: Any) -> list[str]:
    """Fields of a learner, policy or calibrator, which are frozen records; a problem is one too, but is no setting."""
    is_settings = is_dataclass(part) and not isinstance(part, type) and not hasattr(part, "written")
    return [field.name for field in fields(part) if field.init] if is_settings else []
