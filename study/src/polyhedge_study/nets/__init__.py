"""Level sets of convex networks: a shape of the study that the library takes like any other, and quicker ways."""

from polyhedge_study.nets.convex_net import ConvexNet, volume_from_rays
from polyhedge_study.nets.convex_nets import ConvexNets
from polyhedge_study.nets.net_decisions import NetSets, decide_nets, guarded_sets

__all__ = ["ConvexNet", "ConvexNets", "NetSets", "decide_nets", "guarded_sets", "volume_from_rays"]
