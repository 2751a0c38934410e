"""Rows of objects, for tests to which nothing but their names matters."""

from levelog_store.rows import StoredObject


def stored_object(name: str, *, uid: str = "", version: int = 1, body: bytes = b"{}") -> StoredObject:
    """The row of `resource/namespace/name`, with `_` for no namespace; the uid is that name unless one is given."""
    resource, namespace, _ = name.split("/")
    return StoredObject(
        object=name,
        partition=0,
        resource=resource,
        namespace="" if namespace == "_" else namespace,
        uid=uid or name,
        version=version,
        sequence=1,
        is_deleting=False,
        body=body,
    )
