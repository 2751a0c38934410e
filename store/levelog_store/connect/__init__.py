"""Engines, transactions, and errors of drivers translated."""
