"""Controllers: garbage collection, deletion of namespaces, and CRDs."""
