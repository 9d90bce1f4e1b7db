r"""The partially input-convex network of Amos et al. as Yeh et al. use it: parameters, gates, one training step.

With $u_1 = [U_1 x + c_1]_+$ and $u_2 = [U_2 u_1 + c_2]_+$ the score of a residual e at features x is that of
`nets.ConvexNets`, whose gates and offsets are affine in x (first layer), $u_1$ (second) and $u_2$ (output),
cut at zero where they multiply hidden units. Hidden weights stay non-negative by projection after every step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from polyhedge_study.inside import Array
from polyhedge_study.nets import ConvexNets

WIDTH = 64
"""Units of each of the two hidden layers, as in the paper."""
# Multiple of |e|_inf, in units of the residuals' size: keeps sets bounded and is small beside what is learned.
SLOPE = 0.02
_NON_NEGATIVE = ("C2", "w3")

Parameters = dict[str, Any]


@dataclass(frozen=True)
class Contacts:
    """Points at which the objective touches the network, with the weight of their scores.

    Attributes
    ----------
    rows : (C,) which context.
    points : (C, d) residuals.
    weights : (C,) derivative of the objective in the score there.
    first, second : (C, h1), (C, h2) share of each hidden unit that is on; between 0 and 1 at a kink.
    """

    rows: np.ndarray[tuple[int], np.dtype[np.intp]]
    points: Array
    weights: Array
    first: Array
    second: Array


def initial_parameters(n_features: int, n_outcomes: int, rng: np.random.Generator) -> Parameters:
    """Random weights of a network that starts close to a norm of the residual and hardly depends on x."""
    h, d = WIDTH, n_outcomes
    matrices = {
        "A1": rng.standard_normal((h, d)),
        "C2": rng.uniform(0, 2 / h, (h, h)),
        "A2": 0.3 * rng.standard_normal((h, d)),
        "w3": rng.uniform(0, 2 / h, h),
        "U1": rng.standard_normal((h, n_features)) / np.sqrt(n_features),
        "U2": rng.standard_normal((h, h)) / np.sqrt(h),
        "c1": np.zeros(h),
        "c2": np.zeros(h),
    }
    gates = {"g1": (d, n_features, 1.0), "k1": (h, n_features, 0.0), "m2": (h, h, 1.0), "g2": (d, h, 1.0)}
    gates |= {"k2": (h, h, 0.0), "m3": (h, h, 1.0), "k3": (1, h, 0.0)}
    for name, (rows, columns, offset) in gates.items():
        matrices[f"{name}_slope"] = 0.1 * rng.standard_normal((rows, columns)) / np.sqrt(columns)
        matrices[f"{name}_offset"] = np.full(rows, offset)
    return matrices


def networks(parameters: Parameters, features: Array, unit: float) -> ConvexNets:
    """The networks at the rows of `features`; residuals are measured in multiples of `unit`."""
    arrays = {name: np.asarray(value, dtype=np.float64) for name, value in parameters.items()}
    gates = _gates(arrays, features, np)
    return ConvexNets(
        A1=arrays["A1"] / unit,
        C2=arrays["C2"],
        A2=arrays["A2"] / unit,
        w3=arrays["w3"],
        slope=SLOPE / unit,
        **gates | {"k3": gates["k3"][:, 0]},
    )


@lru_cache(maxsize=4)
def make_step(
    learning_rate: float,
) -> tuple[Callable[[Parameters], Any], Callable[[Parameters, Any, Array, Contacts, float], tuple[Parameters, Any]]]:
    """Adam as two functions: parameters -> state, and (parameters, state, features, contacts, unit) -> both anew.

    They are made once for a learning rate, because compiling takes longer than a hundred steps.
    """
    jax, jnp, optax = _packages()
    adam = optax.adam(learning_rate)

    @jax.jit  # type: ignore[untyped-decorator]
    def step(parameters: Parameters, state: Any, *arrays: Any) -> tuple[Parameters, Any]:
        updates, state = adam.update(gradient(parameters, *arrays), state, parameters)
        moved = optax.apply_updates(parameters, updates)
        return moved | {name: jnp.maximum(moved[name], 0.0) for name in _NON_NEGATIVE}, state

    def apply(
        parameters: Parameters, state: Any, features: Array, contacts: Contacts, unit: float
    ) -> tuple[Parameters, Any]:
        return step(parameters, state, *contact_arrays(features, contacts, unit))

    return adam.init, apply


def gradient(parameters: Parameters, *arrays: Any) -> Parameters:
    """Derivative of the weighted sum of scores at the contacts, in every parameter; the rest are `contact_arrays`."""
    jax, jnp, _ = _packages()
    return dict(jax.grad(_weighted_scores)(parameters, *arrays, jnp))


def _packages() -> tuple[Any, Any, Any]:
    try:
        import jax
        import jax.numpy as jnp
        import optax
    except ImportError as error:
        raise ImportError("Training a PICNN needs JAX and optax: pip install 'polyhedge-study[picnn]'.") from error
    return jax, jnp, optax


def contact_arrays(features: Array, contacts: Contacts, unit: float) -> tuple[Array, ...]:
    """What the derivative needs of each contact, in single precision as JAX works."""
    values = (features[contacts.rows], contacts.points / unit, contacts.weights, contacts.first, contacts.second)
    return tuple(np.asarray(value, dtype=np.float32) for value in values)


def _weighted_scores(
    parameters: Parameters, features: Any, points: Any, weights: Any, first_on: Any, second_on: Any, xp: Any
) -> Any:
    """Sum of weight times score, each score on the linear piece that its units name."""
    gates = _gates(parameters, features, xp)
    first = ((points * gates["g1"]) @ parameters["A1"].T + gates["k1"]) * first_on
    second = (first * gates["m2"]) @ parameters["C2"].T + (points * gates["g2"]) @ parameters["A2"].T + gates["k2"]
    scores = (second * second_on * gates["m3"]) @ parameters["w3"] + gates["k3"][:, 0]
    return weights @ scores


def _gates(parameters: Parameters, features: Any, xp: Any) -> dict[str, Any]:
    u1 = xp.maximum(features @ parameters["U1"].T + parameters["c1"], 0.0)
    u2 = xp.maximum(u1 @ parameters["U2"].T + parameters["c2"], 0.0)
    sources = {"g1": features, "k1": features, "m2": u1, "g2": u1, "k2": u1, "m3": u2, "k3": u2}
    gates = {
        name: source @ parameters[f"{name}_slope"].T + parameters[f"{name}_offset"] for name, source in sources.items()
    }
    return gates | {name: xp.maximum(gates[name], 0.0) for name in ("m2", "m3")}
