"""The manifests that run an application: a kustomize base with overlays, or a Helm chart."""
