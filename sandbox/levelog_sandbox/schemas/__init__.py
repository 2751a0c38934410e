"""What the API serves, and checks of objects against schemas and CEL rules."""
