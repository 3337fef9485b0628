//! From the URL of an etcd cluster to what is needed to call it.
//! Files are read here, once, so that a missing one is told at the start and not at the first failover.

use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use super::cause::Speaks;
use super::link::Link;
use crate::UrlError;
use crate::effect::chain;
use crate::location::{Host, Location};

const PORT: u16 = 2379;
const PREFIX: &str = "snowmint/";
const PARAMETERS: &str = "prefix, password_file, tls, ca, cert and key";

/// What all keys of the store begin with: never empty, with a `/` at its end.
fn prefix(location: &mut Location) -> Result<String, UrlError> {
    let Some(prefix) = location.take("prefix") else {
        return Ok(PREFIX.to_owned());
    };
    match prefix.trim_end_matches('/') {
        "" => Err(location.malformed("prefix= needs a text, such as snowmint/")),
        prefix => Ok(format!("{prefix}/")),
    }
}

/// Takes apart `etcd://...` or `etcds://...`.
fn location(url: &str) -> Result<Location, UrlError> {
    let (scheme, rest) = url.split_once(':').unwrap_or((url, ""));
    let scheme = if scheme == "etcds" { "etcds" } else { "etcd" };
    let location = Location::parse(scheme, rest, PORT)?;
    if location.hosts.is_empty() {
        return Err(location.malformed("needs a host, such as etcd://10.0.0.7:2379"));
    }
    if !location.path.is_empty() {
        return Err(location.malformed(
            "unexpected path after the hosts: name another prefix of the keys with ?prefix=TEXT",
        ));
    }
    Ok(location)
}

pub(super) fn settings(url: &str) -> Result<(Link, String), UrlError> {
    let mut location = location(url)?;
    let login = location.take_login()?;
    let prefix = prefix(&mut location)?;
    let (tls, speaks) = match tls(&mut location)? {
        Some((tls, speaks)) => (Some(tls), speaks),
        None => (None, Speaks::Plain),
    };
    location.finish(PARAMETERS)?;
    let endpoint = |host: &Host| {
        let scheme = if tls.is_some() { "https" } else { "http" };
        let refuse = |error: tonic::transport::Error| location.malformed(&chain(&error));
        let endpoint = Endpoint::from_shared(format!("{scheme}://{host}")).map_err(refuse)?;
        match &tls {
            Some(tls) => endpoint.tls_config(tls.clone()).map_err(refuse),
            None => Ok(endpoint),
        }
    };
    let endpoints: Result<Vec<_>, _> = location.hosts.iter().map(endpoint).collect();
    Ok((Link::new(endpoints?, location.shown_hosts(), login, speaks), prefix))
}

fn tls(location: &mut Location) -> Result<Option<(ClientTlsConfig, Speaks)>, UrlError> {
    let said = location.take_switch("tls")?;
    let (ca, cert, key) = (location.take_path("ca"), location.take_path("cert"), location.take_path("key"));
    let wanted = location.scheme == "etcds" || ca.is_some() || cert.is_some() || key.is_some();
    if said == Some(false) && wanted {
        return Err(location.malformed("tls=false does not go with etcds:, ca=, cert= or key="));
    }
    if !wanted && said != Some(true) {
        return Ok(None);
    }
    let config = match ca {
        Some(path) => {
            let pem = location.read_file("ca", &path)?;
            ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem))
        }
        None => ClientTlsConfig::new().with_native_roots(),
    };
    match (cert, key) {
        (None, None) => Ok(Some((config, Speaks::Tls))),
        (Some(cert), Some(key)) => {
            let (cert, key) = (location.read_file("cert", &cert)?, location.read_file("key", &key)?);
            let config = config.identity(Identity::from_pem(cert, key));
            Ok(Some((config, Speaks::TlsWithCertificate)))
        }
        _ => Err(location.malformed("cert= and key= go together")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_url_gives_hosts_and_a_prefix() {
        let (link, prefix) = settings("etcd://h1,h2:1?prefix=/team/a").unwrap();
        assert_eq!((link.shown_hosts(), &*prefix), ("h1:2379,h2:1", "/team/a/"));
        assert_eq!(settings("etcd://h").unwrap().1, "snowmint/");
        assert_eq!(settings("etcds://h?prefix=a/").unwrap().1, "a/");
    }

    #[test]
    fn a_switch_takes_each_word_that_is_usual() {
        for (word, uses_tls) in
            [("1", true), ("true", true), ("on", true), ("0", false), ("false", false), ("no", false)]
        {
            let url = format!("etcd://h?tls={word}");
            let mut location = location(&url).unwrap();
            assert_eq!(tls(&mut location).unwrap().is_some(), uses_tls, "{word}");
        }
    }

    #[test]
    fn a_mistake_in_a_url_is_told() {
        let cases = [
            ("etcd:h1", "needs `//`"),
            ("etcd://", "needs a host"),
            ("etcd://h/path", "?prefix=TEXT"),
            ("etcd://h?prefix=/", "prefix= needs a text"),
            ("etcd://h?tsl=true", "no parameter `tsl`"),
            ("etcd://h?tls=maybe", "tls= is true or false"),
            ("etcds://h?tls=false", "does not go with"),
            ("etcd://h?ca=/nowhere/ca.pem", "ca=/nowhere/ca.pem: No such file"),
            ("etcd://u@h?password_file=/nowhere", "password_file /nowhere: No such file"),
            ("etcd://:hunter2@h", "a password but no user"),
        ];
        for (url, wanted) in cases {
            let error = settings(url).map(|(link, _)| link).unwrap_err().to_string();
            assert!(error.contains(wanted) && !error.contains("hunter2"), "{url}: {error}");
        }
    }
}
