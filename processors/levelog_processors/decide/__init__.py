"""Decides on levels: runs views and reconcile functions, and makes intents."""
