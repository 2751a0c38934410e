"""Files of other frameworks, on levelog. One for Kopf begins with `from levelog.compat import kopf`: its one change."""
