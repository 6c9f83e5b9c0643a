"""What a resize of a hash ring costs, and what writes cost meanwhile; see `run.py`."""
