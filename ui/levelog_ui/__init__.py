"""The pages of `levelog ui`."""
