"""How the graph is divided among workers: what each way costs, and which one to choose. Nothing here runs anything.

sizes.py    what is fitted: bytes of rows and messages, nanoseconds of the kernels
costs.py    one division on one cluster: seconds, bytes, memory
choose.py   the division of a fit, and the paragraph that is printed before it
"""

from considerate.distributed.division.choose import Choice, choose_division
from considerate.distributed.division.costs import Cluster, Costs, division_costs
from considerate.distributed.division.sizes import Sizes

__all__ = ["Choice", "Cluster", "Costs", "Sizes", "choose_division", "division_costs"]
