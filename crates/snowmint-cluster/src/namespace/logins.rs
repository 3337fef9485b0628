//! Logins: the servers that a node trusts with a password, a certificate or a file, each by a name.
//!
//! Everyone who can write to the store can write the sources of a namespace. So a source has no password and
//! names no file; what it needs of them is in a login of each node, which the source names (`login=shop`). A
//! login belongs to one server and database: a source that names another place does not get it. Without a
//! login, a node sends a source no secret at all.

use std::collections::BTreeMap;
use std::fmt;

use snowmint::error::Snippet;
use toml::Spanned;

use super::counter_source::{CounterSource, ServerPlace, WHICH_COUNTER, has_parameter};
use super::{ConfigTextError, NamespaceName};

/// The largest number of logins of a node.
const MAX_LOGINS: usize = 256;
/// The longest URL, in bytes.
const MAX_URL: usize = 4096;

/// The logins of a node, by name.
///
/// # Examples
///
/// ```
/// use snowmint_cluster::namespace::{CounterSource, Logins};
/// let logins: Logins = "shop=mysql://leaf:hunter2@db/leaf".parse()?;
/// let source: CounterSource = "leaf:mysql://leaf@db/leaf?tag=order&login=shop".parse().expect("a source");
/// assert!(logins.url(&source).is_ok());
/// let elsewhere: CounterSource = "leaf:mysql://leaf@evil/leaf?tag=order&login=shop".parse().expect("a source");
/// assert!(logins.url(&elsewhere).is_err());
/// # Ok::<(), snowmint_cluster::namespace::ConfigTextError>(())
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Logins(BTreeMap<NamespaceName, String>);

/// Why a node does not open a source.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SourceRefusal {
    /// The source names a file, or has a parameter that sources do not have.
    #[error("{why}")]
    Unsafe {
        /// The source and the remedy.
        why: String,
    },
    /// This process does not have the login.
    #[error(
        "source {source_text}: unknown login {login}: add it with --logins, SNOWMINT_LOGINS or the table [logins] of the \
         namespace file, with a URL such as {example}"
    )]
    UnknownLogin {
        /// The source.
        source_text: String,
        /// The name of the login.
        login: Snippet,
        /// The URL that the login could have.
        example: String,
    },
    /// The login is for another server, user or database.
    #[error(
        "source {source_text}: login {login} is for {place}: scheme, user, hosts and database have to be the same; \
         correct the source or the login"
    )]
    OtherPlace {
        /// The source.
        source_text: String,
        /// The name of the login.
        login: NamespaceName,
        /// The place of the login, without its password.
        place: String,
    },
}

/// The URL to open for a source. `Debug` does not show it, since it may have a password.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct SourceUrl(String);

impl SourceUrl {
    /// Returns the URL, for the call that opens it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SourceUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SourceUrl(***)")
    }
}

impl fmt::Debug for Logins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys().map(NamespaceName::as_str)).finish()
    }
}

impl Logins {
    /// Returns the URL that opens a source: its own, or that of its login. It takes no password from the
    /// environment.
    ///
    /// # Errors
    ///
    /// [`SourceRefusal`] if the source would make this process use a file or send a secret that no login
    /// names.
    pub fn url(&self, source: &CounterSource) -> Result<SourceUrl, SourceRefusal> {
        source.check_safe().map_err(|why| SourceRefusal::Unsafe { why })?;
        let (system, url) = source.system_and_url();
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let mut parameters: Vec<&str> = query.split('&').filter(|it| !it.is_empty()).collect();
        let mut base = base.to_owned();
        if let Some(login) = source.login() {
            let (name, of_login) = self.find(source, &login)?;
            parameters.retain(|parameter| !parameter.starts_with(LOGIN_IS));
            let (server, more) = of_login.split_once('?').unwrap_or((of_login, ""));
            if ServerPlace::of(server) != ServerPlace::of(&base) {
                let (source_text, login) = (source.to_string(), name.clone());
                let place = ServerPlace::of(server).to_string();
                return Err(SourceRefusal::OtherPlace { source_text, login, place });
            }
            server.clone_into(&mut base);
            parameters.extend(more.split('&').filter(|it| !it.is_empty()));
        }
        parameters.push("environment=no");
        let system = if system.is_empty() { String::new() } else { format!("{system}:") };
        Ok(SourceUrl(format!("{system}{base}?{}", parameters.join("&"))))
    }

    fn find(&self, source: &CounterSource, login: &str) -> Result<(&NamespaceName, &str), SourceRefusal> {
        let found = self.0.iter().find(|(name, _)| name.as_str() == login);
        found.map(|(name, url)| (name, &**url)).ok_or_else(|| SourceRefusal::UnknownLogin {
            source_text: source.to_string(),
            login: Snippet::of(login),
            example: ServerPlace::of(source.system_and_url().1.split('?').next().unwrap_or_default())
                .with_password("..."),
        })
    }

    /// Returns these logins and those of `others`, which win.
    #[must_use]
    pub fn overridden_by(mut self, others: &Self) -> Self {
        self.0.extend(others.0.iter().map(|(name, url)| (name.clone(), url.clone())));
        self
    }

    /// Adds a login.
    ///
    /// # Errors
    ///
    /// What is wrong, without the URL.
    fn insert(&mut self, name: &str, url: &str) -> Result<(), String> {
        const EXPECTED: &str = "expected a URL such as mysql://USER:PASSWORD@HOST/DATABASE?ssl-ca=FILE";
        let name = NamespaceName::new(name)
            // A URL in the wrong place may have a password.
            .map_err(|_| "invalid name of a login: expected 1 to 64 letters, digits, `.`, `_`, `-` or `:`")?;
        if url.len() > MAX_URL || !url.bytes().all(|it| it.is_ascii_graphic()) || !url.contains(':') {
            return Err(format!("invalid login {name}: {EXPECTED}"));
        }
        if url.starts_with("sqlite:") || url.starts_with("memory:") || CounterSource::is_counter_url(url) {
            return Err(format!("invalid login {name}: {EXPECTED}, of a server on the network"));
        }
        if let Some(problem) = snowmint_store::unescaped_login(url) {
            return Err(format!("invalid login {name}: {problem}"));
        }
        let (base, _) = url.split_once('?').unwrap_or((url, ""));
        match snowmint_store::store_of_scheme(base.split(':').next().unwrap_or_default()) {
            None => return Err(format!("invalid login {name}: unknown scheme: {EXPECTED}")),
            // Its place is shown in errors.
            Some((_, None)) if base.contains('@') => {
                return Err(format!("invalid login {name}: the URLs of this store have no user: {EXPECTED}"));
            }
            Some(_) => {}
        }
        if let Some(of_source) = WHICH_COUNTER.iter().find(|it| has_parameter(url, it)) {
            return Err(format!(
                "invalid login {name}: `{of_source}` says which numbers to use, so it belongs to the source, which is the same \
                 on every node"
            ));
        }
        if self.0.len() >= MAX_LOGINS {
            return Err(format!("invalid number of logins: expected at most {MAX_LOGINS}"));
        }
        self.0.insert(name, url.to_owned());
        Ok(())
    }

    /// Reads the table of a file.
    pub(super) fn of_table(
        table: BTreeMap<Spanned<String>, Spanned<toml::Value>>,
    ) -> Result<Self, (std::ops::Range<usize>, String)> {
        let mut logins = Self::default();
        for (name, url) in table {
            let url = url.get_ref().as_str().unwrap_or_default();
            logins.insert(name.get_ref(), url).map_err(|why| (name.span(), why))?;
        }
        Ok(logins)
    }
}

/// The parameter that names the login, with its `=`.
const LOGIN_IS: &str = "login=";

impl std::str::FromStr for Logins {
    type Err = ConfigTextError;

    /// Reads `NAME=URL`, several separated by white space.
    fn from_str(text: &str) -> Result<Self, ConfigTextError> {
        let mut logins = Self::default();
        for login in text.split_whitespace() {
            let added = match login.split_once('=') {
                Some((name, url)) => logins.insert(name, url),
                None => Err("invalid login: expected NAME=URL".to_owned()),
            };
            added.map_err(|message| ConfigTextError { line: None, message })?;
        }
        Ok(logins)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logins() -> Logins {
        "shop=mysql://leaf:hunter2@db/leaf?ssl-ca=/etc/ca.pem cache=rediss://:hunter2@cache:7000/3?cert=/c&key=/k \
         pg=postgres://mint@pg/ids?password_file=/p k=kubernetes:ids?server=https://k8s&token_file=/t"
            .parse()
            .unwrap()
    }

    fn url(source: &str) -> Result<String, String> {
        let source: CounterSource = source.parse().unwrap();
        logins().url(&source).map(|it| it.as_str().to_owned()).map_err(|error| error.to_string())
    }

    /// Goal: a source opens with the secrets and files of its login, and without any if it names no login.
    #[test]
    fn a_source_uses_its_login_and_nothing_else() {
        for (source, opened) in [
            ("leaf:mysql://leaf@db/leaf?tag=a", "leaf:mysql://leaf@db/leaf?tag=a&environment=no"),
            ("1/2 etcd://a,b", "etcd://a,b?environment=no"),
            (
                "leaf:mysql://leaf@db/leaf?tag=a&login=shop",
                "leaf:mysql://leaf:hunter2@db/leaf?tag=a&ssl-ca=/etc/ca.pem&environment=no",
            ),
            (
                "redis-counter:rediss://cache:7000/3?login=cache&counter=n",
                "redis-counter:rediss://:hunter2@cache:7000/3?counter=n&cert=/c&key=/k&environment=no",
            ),
            (
                "1/2 postgres://mint@PG:5432/ids?login=pg",
                "postgres://mint@pg/ids?password_file=/p&environment=no",
            ),
            ("1/2 kubernetes:ids?login=k", "kubernetes:ids?server=https://k8s&token_file=/t&environment=no"),
        ] {
            assert_eq!(url(source).as_deref(), Ok(opened), "{source}");
        }
    }

    /// Goal: no source makes a node use a file, and no login goes to another place than its own. Method:
    /// every parameter with a file, every scheme that needs one, and each part of a place changed.
    #[test]
    fn what_a_source_could_steal_is_refused() {
        let with = |parameter: &str| format!("1/2 postgres://mint@pg/ids?{parameter}");
        for parameter in [
            "password_file=/etc/passwd",
            "p%61ssword_file=/etc/passwd",
            "socket=/run/x",
            "ca=/x",
            "cert=/x",
            "key=/x",
            "ssl-ca=/x",
            "ssl-cert=/x",
            "ssl-key=/x",
            "sslrootcert=/x",
            "sslcert=/x",
            "sslkey=/x",
            "token_file=/x",
            "server=https://evil",
            "environment=yes",
        ] {
            for login in ["", "&login=pg"] {
                let error = url(&with(&format!("{parameter}{login}"))).unwrap_err();
                assert!(error.contains("login=NAME"), "{parameter}: {error}");
            }
        }
        for source in ["1/2 sqlite:/etc/shadow", "1/2 sqlite:a.db?login=pg", "1/2 kubernetes:ids"] {
            assert!(url(source).is_err(), "{source}");
        }
        // The mode of TLS is that of the login: a source could turn it off.
        assert!(url(&with("login=pg&sslmode=disable")).unwrap_err().contains("sslmode"));
        for elsewhere in [
            "1/2 postgres://mint@evil/ids?login=pg",
            "1/2 postgres://mint@pg,evil/ids?login=pg",
            "1/2 postgres://mint@pg:5433/ids?login=pg",
            "1/2 postgres://root@pg/ids?login=pg",
            "1/2 postgres://pg/ids?login=pg",
            "1/2 postgres://mint@pg/other?login=pg",
            "1/2 mysql://mint@pg:5432/ids?login=pg",
            "redis-counter:redis://cache:7000/3?counter=n&login=cache",
            "1/2 kubernetes:other?login=k",
        ] {
            let error = url(elsewhere).unwrap_err();
            assert!(
                error.contains("have to be the same") && !error.contains("hunter2"),
                "{elsewhere}: {error}"
            );
        }
        let error = url("leaf:mysql://leaf@db/leaf?tag=a&login=gone").unwrap_err();
        for words in ["unknown login `gone`", "--logins", "[logins]", "mysql://leaf:...@db:3306/leaf"] {
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn an_invalid_login_is_refused_without_its_password() {
        for (bad, words) in [
            ("shop", "expected NAME=URL"),
            ("mysql://u:hunter2@h/?x=y", "invalid name of a login"),
            ("shop=hunter2", "expected a URL such as"),
            ("shop=sqlite:/hunter2", "on the network"),
            ("shop=mysq://u:hunter2@h/l", "unknown scheme"),
            ("shop=kubernetes://u:hunter2@h/l", "no user"),
            ("shop=leaf:mysql://u:hunter2@h/l", "on the network"),
            ("shop=mysql://u:p@hunter2/w@h/l", "%40, %2F and %3F"),
            ("shop=mysql://u:hunter2/w@h/l", "%40, %2F and %3F"),
            ("shop=redis://:hunter2?w@h/0", "%40, %2F and %3F"),
            ("shop=mysql://u:hunter2@h/l?tag=a", "belongs to the source"),
            ("shop=redis://:hunter2@h?may_lose=0", "belongs to the source"),
        ] {
            let error = bad.parse::<Logins>().unwrap_err().to_string();
            assert!(error.contains(words) && !error.contains("hunter2"), "{bad}: {error}");
        }
        assert!(!format!("{:?}", logins()).contains("hunter2"));
    }

    #[test]
    fn flags_win_over_a_file() {
        let flags: Logins = "shop=mysql://leaf:new@db/leaf".parse().unwrap();
        let both = logins().overridden_by(&flags);
        let source: CounterSource = "leaf:mysql://leaf@db/leaf?tag=a&login=shop".parse().unwrap();
        assert!(both.url(&source).unwrap().as_str().contains("leaf:new@db"));
    }
}
