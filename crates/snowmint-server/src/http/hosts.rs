//! Whom a request is addressed to. A name that an attacker owns may lead to this machine (DNS rebinding), and then a page
//! of theirs may read what is served here to this machine alone; the browser still says the name it asked for.

use std::net::Ipv6Addr;

use hyper::header::{HOST, HeaderValue};
use hyper::http::uri::Authority;
use hyper::{Request, Version};
use snowmint::error::Snippet;

use crate::http::problem::Problem;
use crate::status::Kind;

/// Whom HTTP requests may be addressed to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllowedHosts {
    /// Anybody: for listeners that other machines reach by names of their own.
    Any,
    /// `localhost`, names below it, IP addresses, and these names.
    Names(Vec<String>),
}

/// A text that is not the name of a host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid host name `{0}`: expected a name without port, such as ids.example.com, or * for any")]
pub struct HostError(String);

impl AllowedHosts {
    /// These names besides those of this machine; `*` stands for any.
    ///
    /// # Errors
    ///
    /// [`HostError`] names what is not the name of a host.
    ///
    /// # Examples
    ///
    /// ```
    /// use snowmint_server::AllowedHosts;
    /// let hosts = AllowedHosts::new(["ids.example.com"]).unwrap();
    /// assert!(hosts.allow("IDS.example.com.") && hosts.allow("127.0.0.1") && !hosts.allow("evil.example"));
    /// assert_eq!(AllowedHosts::new(["*"]).unwrap(), AllowedHosts::Any);
    /// assert!(AllowedHosts::new(["http://ids"]).is_err());
    /// ```
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, HostError> {
        let mut known = Vec::new();
        for name in names {
            if name == "*" {
                return Ok(Self::Any);
            }
            let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
            if name.is_empty() || !name.bytes().all(is_name) {
                return Err(HostError(Snippet::of(name).as_str().to_owned()));
            }
            known.push(bare(name));
        }
        Ok(Self::Names(known))
    }

    /// Whether a request may be addressed to this host, which is given without its port.
    pub fn allow(&self, host: &str) -> bool {
        let Self::Names(names) = self else { return true };
        let address = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        if address
            .map_or_else(|| host.parse::<std::net::IpAddr>().is_ok(), |it| it.parse::<Ipv6Addr>().is_ok())
        {
            // No name leads anywhere here.
            return true;
        }
        let host = bare(host);
        host.is_empty() || host == "localhost" || host.ends_with(".localhost") || names.contains(&host)
    }
}

fn bare(host: &str) -> String {
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

/// Checks that a request says once and well whom it is addressed to, as RFC 9112 demands, and that it is us.
pub(super) fn check_host<B>(allowed: &AllowedHosts, request: &Request<B>) -> Result<(), Problem> {
    let bad = |what: &str| {
        Problem::new(
            Kind::BadRequest,
            format!("{what}: HTTP/1.1 needs one Host header, such as localhost:8080"),
        )
    };
    let mut hosts = request.headers().get_all(HOST).iter();
    let host = match (hosts.next(), hosts.next()) {
        (Some(_), Some(_)) => return Err(bad("repeated Host header")),
        (None, _) if request.version() >= Version::HTTP_11 => return Err(bad("missing Host header")),
        (host, _) => host,
    };
    // A proxy's form of the request names the host itself, and that counts.
    if let Some(authority) = request.uri().authority() {
        return check_name(allowed, authority.host());
    }
    match host.map(HeaderValue::as_bytes) {
        None | Some(b"") => Ok(()),
        Some(bytes) => match Authority::try_from(bytes) {
            Ok(authority) if !authority.as_str().contains('@') => check_name(allowed, authority.host()),
            _ => Err(bad("invalid Host header")),
        },
    }
}

fn check_name(allowed: &AllowedHosts, host: &str) -> Result<(), Problem> {
    if allowed.allow(host) {
        return Ok(());
    }
    let detail = format!(
        "this server listens on a loopback address and does not serve the host {}: ask for localhost, or name the host in \
         --allowed-hosts",
        Snippet::of(host)
    );
    Err(Problem::new(Kind::UnknownHost, detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what a browser can be made to send by a name of an attacker is refused, what people and tools of this machine
    /// send is not.
    #[test]
    fn hosts_of_this_machine_are_told_from_names_of_others() {
        let allowed = AllowedHosts::new(["ids.example.com"]).unwrap();
        for (host, wanted) in [
            ("localhost", None),
            ("localhost:8080", None),
            ("LOCALHOST.", None),
            ("a.localhost:80", None),
            ("127.0.0.1:8080", None),
            ("10.1.2.3", None),
            ("[::1]:8080", None),
            ("[::1]", None),
            ("", None),
            ("ids.example.com:8443", None),
            ("evil.example", Some(Kind::UnknownHost)),
            ("evil.example:8080", Some(Kind::UnknownHost)),
            ("localhost.evil.example", Some(Kind::UnknownHost)),
            ("127.0.0.1.evil.example", Some(Kind::UnknownHost)),
            ("xlocalhost", Some(Kind::UnknownHost)),
            ("localhost@evil.example", Some(Kind::BadRequest)),
            ("a b", Some(Kind::BadRequest)),
            ("a/b", Some(Kind::BadRequest)),
        ] {
            let request = Request::builder().uri("/x").header(HOST, host).body(()).unwrap();
            assert_eq!(check_host(&allowed, &request).err().map(|it| it.kind), wanted, "{host}");
        }
        let absolute =
            Request::builder().uri("http://evil.example/x").header(HOST, "localhost").body(()).unwrap();
        assert_eq!(check_host(&allowed, &absolute).unwrap_err().kind, Kind::UnknownHost);
    }

    #[test]
    fn one_host_is_needed_since_http_1_1() {
        let request = |version, hosts: &[&str]| {
            let request = Request::builder().uri("/x").version(version);
            hosts.iter().fold(request, |request, host| request.header(HOST, *host)).body(()).unwrap()
        };
        for (version, hosts, is_bad) in [
            (Version::HTTP_11, &[][..], true),
            (Version::HTTP_10, &[], false),
            (Version::HTTP_11, &["a"], false),
            (Version::HTTP_11, &["a", "a"], true),
            (Version::HTTP_10, &["a", "b"], true),
        ] {
            let checked = check_host(&AllowedHosts::Any, &request(version, hosts));
            assert_eq!(
                checked.err().map(|it| it.kind),
                is_bad.then_some(Kind::BadRequest),
                "{version:?} {hosts:?}"
            );
        }
    }
}
