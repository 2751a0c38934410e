"""CustomResourceDefinitions from Resource classes, classes from definitions, and what a change breaks."""
