"""The demonstration: a sandbox cluster, the operator of examples/webs, and a story that is told step by step."""
