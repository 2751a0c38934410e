"""What looks like a secret and is in clear: found by its rule of redaction, without false alarms."""

import base64
from typing import Any

import pytest

from levelog_base.secrets.redaction import Redactor
from levelog_base.secrets.suspects import suspects
from levelog_base.wire.canonical import canonical
from levelog_base.wire.objects import GroupResource

PEM = "-----BEGIN {} KEY-----\nMIIEvQIBADANBg\n-----END {} KEY-----\n"
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMIIEvQIBADANBg\n-----END CERTIFICATE-----\n"
TOKEN = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N"
DIGEST = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"


def found(content: Any, resource: str = "webs.example.com") -> set[str]:
    return suspects(resource, canonical(content))


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        ({"spec": {"password": "hunter2"}}, "webs.example.com:spec.password"),
        ({"spec": {"adminPassword": 12345}}, "webs.example.com:spec.adminPassword"),
        ({"spec": {"users": [{"dbPasswd": "x"}]}}, "webs.example.com:spec.users[].dbPasswd"),
        ({"spec": {"APIKey": "abc"}}, "webs.example.com:spec.APIKey"),
        ({"spec": {"bearer_token": "abc"}}, "webs.example.com:spec.bearer_token"),
        ({"spec": {"clientSecret": "abc"}}, "webs.example.com:spec.clientSecret"),
        ({"spec": {"secretAccessKey": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYKEY"}}, "webs.example.com:spec.secretAccessKey"),
        ({"spec": {"secret": "p@ss w0rd"}}, "webs.example.com:spec.secret"),
        ({"spec": {"tls": {"key": PEM.format("PRIVATE", "PRIVATE")}}}, "webs.example.com:spec.tls.key"),
        ({"spec": {"tls": {"key": PEM.format("RSA PRIVATE", "RSA PRIVATE")}}}, "webs.example.com:spec.tls.key"),
        (
            {"spec": {"pem": base64.b64encode(PEM.format("EC PRIVATE", "EC PRIVATE").encode()).decode()}},
            "webs.example.com:spec.pem",
        ),
        ({"spec": {"args": ["--log", f"--auth={TOKEN}"]}}, "webs.example.com:spec.args[]"),
        ({"spec": {"args": ["--db-password=hunter2"]}}, "webs.example.com:spec.args[]"),
        ({"spec": {"url": "postgres://me:hunter2@db/shop"}}, "webs.example.com:spec.url"),
        ({"spec": {"id": "AKIAIOSFODNN7EXAMPLE"}}, "webs.example.com:spec.id"),
        ({"spec": {"params": [{"name": "password", "value": "x"}]}}, "webs.example.com:spec.params[].value"),
        ({"spec": {"env": [{"name": "DB_PASSWORD", "value": "x"}]}}, "env:DB_PASSWORD"),
        ({"metadata": {"annotations": {"example.com/api-token": "x"}}}, "annotation:example.com/api-token"),
        ({"data": {"app.properties": "port=80\ndb.password=hunter2\n"}}, 'webs.example.com:data["app.properties"]'),
        ({"data": {"app.yaml": 'db:\n  password: "hunter"\n'}}, 'webs.example.com:data["app.yaml"]'),
    ],
)
def test_a_secret_in_clear_is_found(content: Any, rule: str) -> None:
    assert found(content) == {rule}


@pytest.mark.parametrize(
    "content",
    [
        {"env": [{"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "db", "key": "password"}}}]},
        {"passwordSecretRef": {"name": "db", "token": "password"}},
        {"volumes": [{"secret": {"secretName": "db-password"}}], "imagePullSecrets": [{"name": "regcred"}]},
        {"secret": "db-credentials", "tlsSecret": "shop-tls", "credentials": "team-a/github", "secretKey": "password"},
        {"secretName": "a", "passwordFile": "/run/password", "tokenPath": "t", "tokenExpirationSeconds": 600},
        {"password": "$(DB_PASSWORD)", "token": "{{ .Values.token }}", "apiKey": "${KEY}", "passwd": "/run/db"},
        {"password": "", "token": None, "automountServiceAccountToken": False, "allowPassword": True},
        {"tls.crt": CERTIFICATE, "caBundle": base64.b64encode(CERTIFICATE.encode()).decode()},
        {"publicKey": PEM.format("PUBLIC", "PUBLIC"), "password_encryption": "scram-sha-256"},
        {"image": f"docker-pullable://nginx:1.27@{DIGEST}", "checksum/secret": DIGEST[7:], "passwordHash": "$2b$12$x"},
        {"token_digest": DIGEST, "public_token": "abc", "uid": "0a6f7c1e-2b1a-4a3b-9f0e-3a1b2c3d4e5f"},
        {"hard": {"count/secrets": "10"}, "resources": ["secrets"], "required": ["password"]},
        {"properties": {"password": {"type": "string"}}},
        {"main.py": "password: string\ntoken = load(path)\npassword = settings.password\n# password=hunter2\n"},
        {"endpoint": "https://example.com:8443/a@b", "proxy": "http://$USER:$PASSWORD@proxy"},
    ],
)
def test_what_refers_to_a_secret_or_is_public_is_none(content: Any) -> None:
    assert found({"spec": content}) == set()


def test_what_is_redacted_is_none() -> None:
    redactor = Redactor(b"0123456789abcdef")
    secret = {"kind": "Secret", "metadata": {"name": "a", "namespace": "b"}, "data": {"password": "aHVudGVyMg=="}}
    pod = {"metadata": {"name": "a"}, "spec": {"containers": [{"env": [{"name": "TOKEN", "value": "hunter2"}]}]}}
    for name, content in (("secrets", secret), ("pods", pod)):
        assert found(content, name)
        body = redactor.redact_body(GroupResource.parse(name), canonical(content))
        assert suspects(name, body) == set()
