"""The methods the paper compares with, and references: one function `(task, alpha, seed) -> Measured` each.

All conformal ranks are exact, through `polyhedge.calibration`. Public implementations of several of these methods
(robbuffet, the authors' code of PCP, the default of puncc) take the order statistic beside the right one, by
interpolating or by a floating-point ceiling; the versions here are corrected.
"""

from polyhedge_study.baselines.f_croms import f_croms
from polyhedge_study.baselines.norm_sets import bonferroni_box, conformal_ellipsoid, conformal_l_2, conformal_l_inf
from polyhedge_study.baselines.pcp import pcp
from polyhedge_study.baselines.picnn import picnn
from polyhedge_study.baselines.references import nominal, oracle, sample_average

__all__ = [
    "bonferroni_box",
    "conformal_ellipsoid",
    "conformal_l_2",
    "conformal_l_inf",
    "f_croms",
    "nominal",
    "oracle",
    "pcp",
    "picnn",
    "sample_average",
]
