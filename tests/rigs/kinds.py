"""Classes of resources, for tests to which nothing but their names and metadata matters."""

from levelog import Resource


class ConfigMap(Resource, version="v1", plural="configmaps"):
    pass


class Pod(Resource, version="v1", plural="pods"):
    pass


class Secret(Resource, version="v1", plural="secrets"):
    pass


class Service(Resource, version="v1", plural="services"):
    pass


class Web(Resource, group="example.com", version="v1", plural="webs"):
    pass
