"""What commands and metrics read of an application."""
