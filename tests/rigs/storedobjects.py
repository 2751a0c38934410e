"""Rows of objects, for tests to which nothing but their names matters."""

from levelog_store.rows import StoredObject


def stored_object(name: str, *, uid: str = "") -> StoredObject:
    """The row of `resource/namespace/name`; the uid is that name unless another is given."""
    resource, namespace, last = name.split("/")
    return StoredObject(
        object=name,
        partition=0,
        resource=resource,
        namespace=namespace,
        name=last,
        uid=uid or name,
        version=1,
        sequence=1,
        is_deleting=False,
        body=b"{}",
    )
