//! Advice for a user whose node does not trust the certificate of a server. The TLS library names what it
//! found wrong, but not what to do.

/// What the library says about the certificate of a server, and what to do; `CA` is the parameter of the URL
/// that names authorities.
const FAULTS: [(&str, &str); 6] = [
    (
        "UnknownIssuer",
        "the authority that signed the certificate of the server is unknown here: name its file with CA=, or add it to the \
         certificates of this system",
    ),
    (
        "BadSignature",
        "another authority with the same name signed the certificate of the server: name its file with CA=",
    ),
    (
        "CaUsedAsEndEntity",
        "the server shows the certificate of an authority (CA:TRUE), as `openssl req -x509` makes it: give the server a \
         certificate that this authority has signed (basicConstraints=CA:FALSE), and name the authority with CA=",
    ),
    (
        "not valid for name",
        "connect by a name in the certificate, or make a certificate with this host in its subjectAltName",
    ),
    ("expired", "renew the certificate of the server, or correct the clock of this machine"),
    ("not valid yet", "correct the clock of this machine"),
];

/// Returns the text of an error with advice if the client does not trust the certificate of the server;
/// `None` for other errors.
pub(crate) fn untrusted(text: &str, ca: &str) -> Option<String> {
    let (_, found) = text.split_once("invalid peer certificate")?;
    let known = FAULTS.iter().find(|(fault, _)| found.contains(fault)).map(|(_, advice)| *advice);
    let advice =
        known.unwrap_or("check the certificate of the server and CA=").replace("CA=", &format!("{ca}="));
    Some(format!("{text}; {advice}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_of_a_certificate_has_advice() {
        for (fault, advice) in [
            ("UnknownIssuer", "name its file with ssl-ca="),
            ("BadSignature", "name its file with ssl-ca="),
            ("Other(OtherError(CaUsedAsEndEntity))", "name the authority with ssl-ca="),
            (
                "certificate not valid for name \"h\"; certificate is only valid for DnsName(\"a\")",
                "subjectAltName",
            ),
            (
                "certificate expired: verification time 2 (UNIX), but certificate is not valid after 1",
                "renew",
            ),
            (
                "certificate not valid yet: verification time 1 (UNIX), but certificate is not valid before 2",
                "clock",
            ),
            ("BadEncoding", "check the certificate of the server and ssl-ca="),
        ] {
            let text = format!("tls: invalid peer certificate: {fault}");
            let said = untrusted(&text, "ssl-ca").unwrap();
            assert!(said.starts_with(&text) && said.contains(advice), "{said}");
        }
        assert_eq!(untrusted("Connection refused", "ca"), None);
    }
}
