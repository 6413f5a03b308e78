"""What crosses a boundary between processes, as msgspec structs with explicit versions.

Shapes only: no behaviour beyond encoding and hashing. A new shape is a new version beside the old one;
what was written once must be readable for ever.
"""
