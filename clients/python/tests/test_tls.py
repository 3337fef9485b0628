"""TLS: certificates of the servers, and of the client."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives import serialization

import snowmint
from servers import answer, serving

VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


def reply(_: object) -> bytes:
    return answer('{"ranges":[{"first":"7","count":1,"step":"1"}]}')


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("is_trusted", [True, False])
@pytest.mark.parametrize("has_certificate", [True, False])
def test_client_certificates(version: ssl.TLSVersion, is_trusted: bool, has_certificate: bool, tmp_path: Path) -> None:
    """A server that does not trust the client's certificate, or gets none, is `InvalidCertificate`, over each version of TLS."""
    if not has_certificate and version is ssl.TLSVersion.TLSv1_2:
        pytest.skip("TLS 1.2 has no alert for a missing certificate")
    ours, others = trustme.CA(), trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = context.maximum_version = version
    context.verify_mode = ssl.CERT_REQUIRED
    ours.issue_cert("127.0.0.1").configure_cert(context)
    ours.configure_trust(context)
    authority, certificate, key = tmp_path / "ca.pem", tmp_path / "client.pem", tmp_path / "client.key"
    ours.cert_pem.write_to_path(authority)
    issued = (ours if is_trusted else others).issue_cert("client@example.com")
    certificate.write_bytes(b"".join(it.bytes() for it in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(key)
    with (
        serving(reply, context=context) as server,
        snowmint.Client(
            [server.url],
            ca_file=authority,
            client_certificate=(certificate, key) if has_certificate else None,
            buffer=(0, 0),
            timeout=60.0,
        ) as client,
    ):
        if is_trusted and has_certificate:
            assert [client.namespace("orders").next() for _ in range(2)] == [7, 7]
            assert server.connections == 1
        else:
            with pytest.raises(snowmint.InvalidCertificate, match=server.url):
                client.namespace("orders").next()


@pytest.mark.parametrize("name", ["127.0.0.2", "localhost"])
def test_a_certificate_for_another_name_is_rejected(name: str, tmp_path: Path) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    with (
        serving(reply, context=context) as server,
        snowmint.Client([server.url], ca_file=tmp_path / "ca.pem", timeout=60.0) as client,
        pytest.raises(snowmint.InvalidCertificate),
    ):
        client.namespace("orders").next()


def test_a_key_with_a_password_is_an_error_and_no_prompt(tmp_path: Path) -> None:
    issued = trustme.CA().issue_cert("client@example.com")
    key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
    locked = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"hunter2")
    )
    (tmp_path / "client.key").write_bytes(locked)
    issued.cert_chain_pems[0].write_to_path(tmp_path / "client.pem")
    with pytest.raises(snowmint.InvalidOption, match="cannot use client_certificate"):
        snowmint.Client(["https://localhost"], client_certificate=(tmp_path / "client.pem", tmp_path / "client.key"))
