//! The URL of a store on the network: `scheme://user:password@host:port,host/path?name=value`.
//! An error about a bad URL never repeats what may be a password.
//!
//! A password comes from the URL, from a file that it names, or from the environment, in this order.
//! A [`PasswordText`] never shows itself: no log, no error and no `Debug` contains one.

use std::fmt;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use percent_encoding::percent_decode_str;

use super::HostRefusal;
use crate::{StoreErrorKind, UrlError, unescaped_login};

/// The limit of a call, including connecting, unless `timeout_ms` says otherwise.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The longest loss that `may_lose` may state.
pub(crate) const MAX_LOSS: Duration = Duration::from_mins(5);

/// The parts of a URL.
#[derive(Debug)]
pub(crate) struct StoreUrl {
    pub(crate) scheme: &'static str,
    pub(crate) user: Option<String>,
    password: Option<PasswordText>,
    /// In the order of the URL; empty only if the URL names none.
    pub(crate) hosts: Vec<Host>,
    /// With its leading `/`; empty if the URL has none.
    pub(crate) path: String,
    parameters: Vec<(String, String)>,
    /// Whether the environment may give a password: not with `environment=no`.
    pub(crate) uses_environment: bool,
}

/// The files of TLS that a URL names.
pub(crate) struct TlsFiles {
    /// The authorities to trust instead of the system's, or besides them.
    pub(crate) ca: Option<PemFile>,
    /// A client certificate and its key.
    pub(crate) client: Option<(PemFile, PemFile)>,
}

/// A file with certificates or a key.
pub(crate) struct PemFile {
    pub(crate) path: PathBuf,
    pub(crate) pem: Vec<u8>,
}

/// A user, and the source of the password.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Login {
    pub(crate) user: String,
    password: Password,
}

impl Login {
    /// Returns the current password.
    pub(crate) fn password(&self) -> Result<PasswordText, UrlError> {
        // A login always has a password, and a file without one is an error.
        Ok(self.password.read()?.unwrap_or_else(|| PasswordText::new(String::new())))
    }
}

/// A host and its port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Host {
    /// A name or an address, an IPv6 address without brackets.
    name: String,
    port: u16,
}

impl Host {
    pub(crate) const fn new(name: String, port: u16) -> Self {
        Self { name, port }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) const fn port(&self) -> u16 {
        self.port
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, port } = self;
        if name.contains(':') { write!(f, "[{name}]:{port}") } else { write!(f, "{name}:{port}") }
    }
}

impl StoreUrl {
    /// Splits a URL whose scheme is one of these, or means the first of them.
    pub(crate) fn of_url(url: &str, schemes: &[&'static str], port: u16) -> Result<Self, UrlError> {
        let (name, rest) = url.split_once(':').unwrap_or((url, ""));
        let scheme = schemes.iter().copied().find(|it| *it == name).unwrap_or(schemes[0]);
        Self::parse(scheme, rest, port)
    }

    /// Splits what follows `scheme:`.
    pub(crate) fn parse(scheme: &'static str, rest: &str, port: u16) -> Result<Self, UrlError> {
        let malformed = |problem: &str| malformed(scheme, problem);
        if let Some(problem) = unescaped_login(rest) {
            return Err(malformed(problem));
        }
        let rest =
            rest.strip_prefix("//").ok_or_else(|| malformed("missing `//`: expected //HOST:PORT,HOST"))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (Some(login), hosts),
            None => (None, authority),
        };
        let (user, password) = match login.map(|it| it.split_once(':').unwrap_or((it, ""))) {
            Some((user, password)) => (decode(scheme, user)?, decode(scheme, password)?),
            None => (String::new(), String::new()),
        };
        let hosts: Result<_, _> =
            hosts.split(',').filter(|it| !it.is_empty()).map(|it| host(it, port)).collect();
        let mut location = Self {
            scheme,
            user: Some(user).filter(|it| !it.is_empty()),
            password: Some(password).filter(|it| !it.is_empty()).map(PasswordText::new),
            hosts: hosts.map_err(malformed)?,
            path: decode(scheme, path.trim_end_matches('/'))?,
            parameters: parameters(scheme, query)?,
            uses_environment: true,
        };
        location.uses_environment = location.take_switch(ENVIRONMENT)?.unwrap_or(true);
        Ok(location)
    }

    /// Returns whether the URL has a parameter that no caller has taken.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.parameters.iter().any(|(it, _)| it == name)
    }

    /// Removes and returns a parameter.
    pub(crate) fn take(&mut self, name: &str) -> Option<String> {
        let at = self.parameters.iter().position(|(it, _)| it == name)?;
        Some(self.parameters.swap_remove(at).1)
    }

    /// Removes a parameter that is a switch, in any of the usual words; without a value it is on.
    pub(crate) fn take_switch(&mut self, name: &str) -> Result<Option<bool>, UrlError> {
        match self.take(name).as_deref() {
            None => Ok(None),
            Some("" | "1" | "true" | "yes" | "on") => Ok(Some(true)),
            Some("0" | "false" | "no" | "off") => Ok(Some(false)),
            Some(_) => Err(self.malformed(&format!("invalid {name}: expected true or false"))),
        }
    }

    /// Removes a parameter that is the path of a file.
    pub(crate) fn take_path(&mut self, name: &str) -> Option<PathBuf> {
        self.take(name).map(PathBuf::from)
    }

    /// Removes the parameters of TLS by these names, and reads the files that they name; `ca` replaces a
    /// missing authority.
    pub(crate) fn read_tls(
        &mut self,
        [authority, cert, key]: [&'static str; 3],
        ca: Option<PathBuf>,
    ) -> Result<TlsFiles, UrlError> {
        let ca = self.take_path(authority).or(ca).map(|path| self.read_pem(authority, path)).transpose()?;
        let client = match (self.take_path(cert), self.take_path(key)) {
            (None, None) => None,
            (Some(one), Some(other)) => Some((self.read_pem(cert, one)?, self.read_pem(key, other)?)),
            _ => return Err(self.malformed(&format!("{cert}= and {key}= require each other"))),
        };
        Ok(TlsFiles { ca, client })
    }

    fn read_pem(&self, parameter: &'static str, path: PathBuf) -> Result<PemFile, UrlError> {
        match std::fs::read(&path) {
            Ok(pem) => Ok(PemFile { path, pem }),
            Err(error) => Err(self.malformed(&format!("{parameter}={}: {error}", path.display()))),
        }
    }

    /// Removes `socket`, the path of a local socket to use instead of a host.
    pub(crate) fn take_socket(&mut self, port: u16) -> Option<PathBuf> {
        let socket = self.take_path("socket");
        if socket.is_some() && self.hosts.is_empty() {
            self.hosts = vec![Host::new("localhost".to_owned(), port)];
        }
        socket
    }

    /// Rejects a URL without a host.
    pub(crate) fn require_host(&self, example: &str) -> Result<(), UrlError> {
        if self.hosts.is_empty() {
            return Err(self.malformed(&format!("missing host: expected one, such as {example}")));
        }
        Ok(())
    }

    /// Removes a parameter that is a number in a range.
    pub(crate) fn take_number(
        &mut self,
        name: &str,
        range: RangeInclusive<u64>,
    ) -> Result<Option<u64>, UrlError> {
        let Some(text) = self.take(name) else {
            return Ok(None);
        };
        match text.parse() {
            Ok(number) if range.contains(&number) => Ok(Some(number)),
            _ => {
                let (from, to) = range.into_inner();
                Err(self.malformed(&format!("invalid {name} \"{text}\": expected {from} to {to}")))
            }
        }
    }

    /// Removes `timeout_ms`, the limit of a call: 100 ms to a minute.
    pub(crate) fn take_timeout(&mut self) -> Result<Duration, UrlError> {
        let limit = self.take_number("timeout_ms", 100..=60_000)?;
        Ok(limit.map_or(TIMEOUT, Duration::from_millis))
    }

    /// Removes `durable`: whether to refuse a server that does not persist its data. `yes` by default.
    pub(crate) fn take_durable(&mut self) -> Result<bool, UrlError> {
        Ok(self.take_switch("durable")?.unwrap_or(true))
    }

    /// Removes `may_lose`, the time span of the newest writes that a failover may lose, such as `2s`, `500ms`
    /// or `0`.
    pub(crate) fn take_may_lose(&mut self, default: Duration) -> Result<Duration, UrlError> {
        let Some(text) = self.take("may_lose") else {
            return Ok(default);
        };
        let (digits, unit_ms) = match text.strip_suffix("ms") {
            Some(digits) => (digits, 1),
            None => text.strip_suffix('s').map_or((&*text, 0), |digits| (digits, 1000)),
        };
        let number =
            digits.bytes().all(|it| it.is_ascii_digit()).then(|| digits.parse::<u64>().ok()).flatten();
        // Only 0 needs no unit.
        let ms = number.filter(|number| unit_ms > 0 || *number == 0).and_then(|it| it.checked_mul(unit_ms));
        match ms.map(Duration::from_millis) {
            Some(loss) if loss <= MAX_LOSS => Ok(loss),
            _ => Err(self.malformed("invalid may_lose: expected 0 to 300s, such as 2s or 500ms")),
        }
    }

    /// Removes the user and the password, which may be in a file or in the environment.
    pub(crate) fn take_login(&mut self) -> Result<Option<Login>, UrlError> {
        let file = self.take_path("password_file");
        let Some(user) = self.user.take() else {
            let without = file.is_some() || self.password.is_some();
            return if without {
                Err(self.malformed("password without a user: expected USER:PASSWORD@HOST"))
            } else {
                Ok(None)
            };
        };
        let password = self.find_password(file)?;
        if password == Password::Fixed(None) {
            let variable = if self.uses_environment { format!(" or set {VARIABLE}") } else { String::new() };
            return Err(
                self.malformed(&format!("user without a password: add ?password_file=PATH{variable}"))
            );
        }
        Ok(Some(Login { user, password }))
    }

    /// Removes the password, for stores that accept a password without a user and a user without a password.
    pub(crate) fn take_password(&mut self) -> Result<Password, UrlError> {
        let file = self.take_path("password_file");
        self.find_password(file)
    }

    fn find_password(&mut self, file: Option<PathBuf>) -> Result<Password, UrlError> {
        let environment = if self.uses_environment { std::env::var(VARIABLE).ok() } else { None };
        Password::find(self.password.take(), file, environment.map(PasswordText::new))
    }

    /// Rejects parameters that no caller has taken: a mistyped `ca` must not mean "no check".
    pub(crate) fn finish(&self, known: &str) -> Result<(), UrlError> {
        match self.parameters.first() {
            Some((name, _)) => Err(self.malformed(&format!("unknown parameter `{name}`: expected {known}"))),
            None => Ok(()),
        }
    }

    /// Returns the hosts for logs: `h1:2379,h2:2379`.
    pub(crate) fn shown_hosts(&self) -> String {
        self.hosts.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }

    pub(crate) fn malformed(&self, problem: &str) -> UrlError {
        malformed(self.scheme, problem)
    }
}

fn malformed(scheme: &str, problem: &str) -> UrlError {
    UrlError::Malformed { scheme: scheme.to_owned(), problem: problem.to_owned() }
}

/// The error does not repeat the host: part of a password with an unescaped `/` looks like one.
fn host(text: &str, default_port: u16) -> Result<Host, &'static str> {
    const HINT: &str =
        "invalid host: expected `name`, `name:port` or `[IPv6]:port`; write `/` in a password as %2F";
    let (name, port) = match text.strip_prefix('[').map(|it| it.split_once(']').ok_or(HINT)).transpose()? {
        Some((name, port)) => (name, port),
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    let port = match port.strip_prefix(':') {
        Some(port) => port.parse().map_err(|_| HINT)?,
        None if port.is_empty() => default_port,
        None => return Err(HINT),
    };
    if name.is_empty() || port == 0 {
        return Err(HINT);
    }
    Ok(Host { name: name.to_owned(), port })
}

fn parameters(scheme: &str, query: &str) -> Result<Vec<(String, String)>, UrlError> {
    let parameter = |text: &str| {
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        Ok((decode(scheme, name)?, decode(scheme, value)?))
    };
    query.split('&').filter(|it| !it.is_empty()).map(parameter).collect()
}

/// Undoes percent-encoding, such as `%2F`.
fn decode(scheme: &str, text: &str) -> Result<String, UrlError> {
    let is_escape =
        |text: &str| text.as_bytes().get(..2).is_some_and(|it| it.iter().all(u8::is_ascii_hexdigit));
    match percent_decode_str(text).decode_utf8() {
        Ok(decoded) if text.split('%').skip(1).all(is_escape) => Ok(decoded.into_owned()),
        _ => {
            Err(malformed(scheme, "invalid `%` in the URL: expected %25, or two hexadecimal digits of UTF-8"))
        }
    }
}

/// The parameter that says whether the environment may give a password.
const ENVIRONMENT: &str = "environment";
/// The environment variable with the password, if neither the URL nor a file has one.
pub(crate) const VARIABLE: &str = "SNOWMINT_STORE_PASSWORD";

/// A password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct PasswordText(String);

impl PasswordText {
    pub(crate) const fn new(text: String) -> Self {
        Self(text)
    }

    /// Returns the password itself, for the one call that sends it.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for PasswordText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PasswordText(***)")
    }
}

/// The source of a store's password.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Password {
    /// The URL or the environment, which do not change while the process runs; or there is no password.
    Fixed(Option<PasswordText>),
    /// The first line of a file, which may be replaced at any time.
    File(PathBuf),
}

impl Password {
    /// Finds the password of a store: in the URL, else in the first line of the file, else in the
    /// environment.
    ///
    /// # Errors
    ///
    /// [`UrlError::PasswordFile`] if the file is not readable. The environment never replaces a file that is
    /// named.
    pub(crate) fn find(
        in_url: Option<PasswordText>,
        file: Option<PathBuf>,
        in_environment: Option<PasswordText>,
    ) -> Result<Self, UrlError> {
        let found = Self::choose(in_url, file, in_environment);
        // Read it now, so that a mistake in the URL is reported as one.
        found.read()?;
        Ok(found)
    }

    fn choose(
        in_url: Option<PasswordText>,
        file: Option<PathBuf>,
        in_environment: Option<PasswordText>,
    ) -> Self {
        match (in_url, file) {
            (Some(secret), _) => Self::Fixed(Some(secret)),
            (None, Some(path)) => Self::File(path),
            (None, None) => Self::Fixed(in_environment.filter(|it| !it.0.is_empty())),
        }
    }

    /// Returns the current password. A file is read each time, so a new password applies from the next
    /// connection on.
    ///
    /// # Errors
    ///
    /// As for [`find`](Self::find).
    pub(crate) fn read(&self) -> Result<Option<PasswordText>, UrlError> {
        match self {
            Self::Fixed(secret) => Ok(secret.clone()),
            Self::File(path) => read(path).map(Some),
        }
    }

    /// As [`read`](Self::read), for a new connection: an unreadable file may be in the middle of a
    /// replacement.
    pub(crate) fn current(&self) -> Result<Option<PasswordText>, HostRefusal> {
        self.read().map_err(|error| HostRefusal::new(StoreErrorKind::Unavailable, error.to_string()))
    }
}

/// Excludes the newline that editors put at the end of a file.
fn read(path: &Path) -> Result<PasswordText, UrlError> {
    let refuse = |problem: String| UrlError::PasswordFile { path: path.display().to_string(), problem };
    // A pipe, such as `<(...)` of a shell, can be read only once: the next connection would have no password.
    let kind = std::fs::metadata(path).map_err(|error| refuse(error.to_string()))?;
    if !kind.is_file() {
        let problem = "expected a regular file, since it is read again for each connection; write the password to a file or \
            set SNOWMINT_STORE_PASSWORD";
        return Err(refuse(problem.to_owned()));
    }
    let text = std::fs::read_to_string(path).map_err(|error| refuse(error.to_string()))?;
    match text.lines().next() {
        None | Some("") => Err(refuse("the first line is empty, expected the password".to_owned())),
        Some(line) => Ok(PasswordText(line.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(rest: &str) -> Result<StoreUrl, String> {
        StoreUrl::parse("etcd", rest, 2379).map_err(|error| error.to_string())
    }

    #[test]
    fn every_part_is_found() {
        let mut found = parse("//u%40x:p%2F%3a@h1:1,h2,[::1]:3,[fe80::2]/a/b/?ca=%2Fx&tls").unwrap();
        assert_eq!(found.shown_hosts(), "h1:1,h2:2379,[::1]:3,[fe80::2]:2379");
        assert_eq!(found.path, "/a/b");
        assert_eq!(found.take("ca").as_deref(), Some("/x"));
        assert!(found.finish("ca").unwrap_err().to_string().contains("unknown parameter `tls`: expected ca"));
        assert_eq!(found.take("tls").as_deref(), Some(""));
        assert_eq!(found.finish("ca"), Ok(()));
        let login = found.take_login().unwrap().unwrap();
        assert_eq!((&*login.user, login.password().unwrap().expose()), ("u@x", "p/:"));
    }

    #[test]
    fn a_login_has_a_user_and_a_password() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        std::fs::write(&path, "from file\n").unwrap();
        let login = |rest: &str| parse(rest).unwrap().take_login();
        assert_eq!(login("//h").unwrap(), None);
        let found = login(&format!("//u@h?password_file={}", path.display())).unwrap().unwrap();
        assert_eq!((&*found.user, found.password().unwrap().expose()), ("u", "from file"));
        assert!(login("//:secret@h").unwrap_err().to_string().contains("password without a user"));
    }

    /// Goal: no error about a URL contains its password. Method: common mistakes.
    #[test]
    fn a_bad_url_does_not_show_its_password() {
        let bad = [
            "u:hunter2@h",
            "//u:hunter2/x@h1",
            "//u:hunter2?x@h1",
            "//u:hunter2%zz@h1",
            "//u:hunter2",
            "//u:hunter2@h:port",
            "//u:hunter2@:1",
            "//u:hunter2@[::1",
            "//u:hunter2@h:0",
        ];
        for rest in bad {
            let error = parse(rest).expect_err(rest);
            assert!(!error.contains("hunter2"), "{rest}: {error}");
        }
        assert!(!format!("{:?}", parse("//u:hunter2@h").unwrap()).contains("hunter2"));
    }

    #[test]
    fn a_loss_is_a_time_with_its_unit() {
        let may_lose = |rest: &str| {
            StoreUrl::parse("redis", rest, 1)
                .unwrap()
                .take_may_lose(Duration::from_secs(2))
                .map(|it| it.as_millis())
        };
        for (rest, ms) in [("//h", 2000), ("//h?may_lose=0", 0), ("//h?may_lose=0s", 0)] {
            assert_eq!(may_lose(rest).unwrap(), ms, "{rest}");
        }
        for (rest, ms) in [("//h?may_lose=500ms", 500), ("//h?may_lose=300s", 300_000)] {
            assert_eq!(may_lose(rest).unwrap(), ms, "{rest}");
        }
        for bad in
            ["2", "", "s", "ms", "+1s", "-1s", "1.5s", "301s", "300001ms", "18446744073709551615s", "2m"]
        {
            let rest = format!("//h?may_lose={bad}");
            let error = may_lose(&rest).unwrap_err().to_string();
            assert!(error.contains("such as 2s or 500ms"), "{bad}: {error}");
        }
    }

    #[test]
    fn a_time_limit_is_in_bounds() {
        let timeout = |rest| StoreUrl::parse("redis", rest, 1).unwrap().take_timeout();
        assert_eq!(timeout("//h").unwrap(), TIMEOUT);
        assert_eq!(timeout("//h?timeout_ms=250").unwrap(), Duration::from_millis(250));
        for bad in ["//h?timeout_ms=0", "//h?timeout_ms=60001", "//h?timeout_ms=1s", "//h?timeout_ms"] {
            assert!(timeout(bad).unwrap_err().to_string().contains("expected 100 to 60000"), "{bad}");
        }
    }

    fn choose(in_url: Option<PasswordText>, file: Option<&Path>, in_environment: &str) -> Password {
        Password::choose(
            in_url,
            file.map(Path::to_path_buf),
            Some(PasswordText::new(in_environment.to_owned())),
        )
    }

    #[test]
    fn the_nearest_password_wins() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        std::fs::write(&path, "from file\nmore\n").unwrap();
        let secret = |text: &str| Some(PasswordText::new(text.to_owned()));
        assert_eq!(choose(secret("url"), Some(&path), "env").read().unwrap(), secret("url"));
        let from_file = choose(None, Some(&path), "env");
        assert_eq!(from_file.read().unwrap(), secret("from file"));
        std::fs::write(&path, "rotated\n").unwrap();
        assert_eq!(from_file.read().unwrap(), secret("rotated"));
        assert_eq!(choose(None, None, "env").read().unwrap(), secret("env"));
        assert_eq!(choose(None, None, "").read().unwrap(), None);
        assert_eq!(Password::choose(None, None, None).read().unwrap(), None);
    }

    #[test]
    fn a_file_without_a_password_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        let refused = || choose(None, Some(&path), "env").read().unwrap_err().to_string();
        assert!(refused().contains("No such file"), "{}", refused());
        std::fs::write(&path, "\nsecond").unwrap();
        assert!(refused().contains("is empty") && !refused().contains("second"), "{}", refused());
    }

    /// Goal: a file that can be read only once is rejected, since it would be empty for the next connection.
    /// Method: a pipe, as `<(...)` of a shell makes it, and a link to a file, as Kubernetes mounts secrets.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_pipe_is_refused() {
        use std::io::Write;
        use std::os::fd::AsRawFd;
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(b"hunter2\n").unwrap();
        drop(writer);
        let refused = |path: &str| Password::find(None, Some(path.into()), None).unwrap_err().to_string();
        let error = refused(&format!("/dev/fd/{}", reader.as_raw_fd()));
        assert!(error.contains("expected a regular file") && !error.contains("hunter2"), "{error}");
        for path in ["/dev/null", "/"] {
            assert!(refused(path).contains("expected a regular file"), "{}", refused(path));
        }
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("password"), folder.path().join("link"));
        std::fs::write(&path, "secret\n").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(choose(None, Some(&link), "").read().is_ok());
    }

    #[test]
    fn a_secret_does_not_show() {
        assert_eq!(format!("{:?}", PasswordText::new("hunter2".to_owned())), "PasswordText(***)");
    }
}
