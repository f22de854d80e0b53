"""Interfaces of other packages, implemented with this one."""
