//! From the URL of a ZooKeeper ensemble to what is needed to open sessions.

use super::link::Link;
use super::path::Paths;
use crate::UrlError;
use crate::location::Location;

const PORT: u16 = 2181;
const BASE: &str = "/snowmint";

/// Takes apart `zookeeper://...`.
fn location(url: &str) -> Result<Location, UrlError> {
    let (_, rest) = url.split_once(':').unwrap_or((url, ""));
    let location = Location::parse("zookeeper", rest, PORT)?;
    if location.hosts.is_empty() {
        return Err(location.malformed("needs a host, such as zookeeper://10.0.0.7:2181"));
    }
    Ok(location)
}

/// The path under which all records are.
fn base(location: &Location) -> Result<String, UrlError> {
    if location.path.is_empty() {
        return Ok(BASE.to_owned());
    }
    let fits = |name: &str| !matches!(name, "" | "." | "..") && name.chars().all(|it| !it.is_control());
    if location.path[1..].split('/').all(fits) {
        Ok(location.path.clone())
    } else {
        Err(location.malformed("the path after the hosts is names joined by `/`, none empty, `.` or `..`"))
    }
}

pub(super) fn settings(url: &str) -> Result<(Link, Paths), UrlError> {
    let mut location = location(url)?;
    let login = location.take_login()?;
    location.finish("password_file")?;
    let base = base(&location)?;
    if login.as_ref().is_some_and(|it| it.user.contains(':')) {
        return Err(location.malformed("a user of ZooKeeper's `digest` has no `:` in its name"));
    }
    Ok((Link::new(location.shown_hosts(), login), Paths::new(base)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_gives_hosts_and_a_path() {
        let (link, paths) = settings("zookeeper://h1,h2:1/team/a/").unwrap();
        assert_eq!((link.shown_hosts(), paths.base()), ("h1:2181,h2:1", "/team/a"));
        assert_eq!(settings("zookeeper://h").unwrap().1.base(), "/snowmint");
        assert_eq!(settings("zookeeper://h/").unwrap().1.base(), "/snowmint");
    }

    #[test]
    fn a_mistake_in_a_url_is_told() {
        let cases = [
            ("zookeeper:h1", "needs `//`"),
            ("zookeeper://", "needs a host"),
            ("zookeeper://h/a//b", "none empty"),
            ("zookeeper://h/../b", "none empty"),
            ("zookeeper://h?ca=x", "no parameter `ca`"),
            ("zookeeper://a%3Ab:hunter2@h", "no `:` in its name"),
        ];
        for (url, wanted) in cases {
            let error = settings(url).map(|_| ()).unwrap_err().to_string();
            assert!(error.contains(wanted) && !error.contains("hunter2"), "{url}: {error}");
        }
    }
}
