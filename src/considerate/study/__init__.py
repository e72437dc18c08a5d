"""One report on anyone's data: how well it ranks, for whom, how honest p(like) is, what the knob does; and peers."""
