"""Data read by tasks, each its own piece, and exchanged once into the parts of the graph.

    divided.py   read_divided and what it returns
    stages.py    its stages, as the head sees them
    shards.py    what tasks do with shards of users

How a piece is read and split is in `interactions.pieces`.
"""

from considerate.distributed.exchange.read import (
    DividedData,
    from_graph,
    from_interactions,
    read_divided,
    with_all_user_likes,
)

__all__ = ["DividedData", "from_graph", "from_interactions", "read_divided", "with_all_user_likes"]
