//! Passwords of stores: from the URL, from a file that it names, or from the environment, in this order.
//! A [`Secret`] never shows itself: no log, no error and no `Debug` contains one.

use std::fmt;
use std::path::{Path, PathBuf};

use super::Refusal;
use crate::{StoreErrorKind, UrlError};

/// The environment variable with the password, if neither the URL nor a file has one.
pub(crate) const VARIABLE: &str = "SNOWMINT_STORE_PASSWORD";

/// A password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

impl Secret {
    pub(crate) const fn new(text: String) -> Self {
        Self(text)
    }

    /// Returns the password itself, for the one call that sends it.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(***)")
    }
}

/// Where the password of a store comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Password {
    /// The URL or the environment, which do not change while the process runs; or there is no password.
    Fixed(Option<Secret>),
    /// The first line of a file, which may be replaced at any time.
    File(PathBuf),
}

impl Password {
    /// Finds the password of a store: in the URL, else in the first line of the file, else in the environment.
    ///
    /// # Errors
    ///
    /// [`UrlError::PasswordFile`] if the file is not readable. The environment never replaces a file that is named.
    pub(crate) fn find(in_url: Option<Secret>, file: Option<PathBuf>) -> Result<Self, UrlError> {
        let in_environment = std::env::var(VARIABLE).ok().map(Secret::new);
        let found = Self::choose(in_url, file, in_environment);
        // Read now, so that a mistake in the URL is reported as one.
        found.read()?;
        Ok(found)
    }

    fn choose(in_url: Option<Secret>, file: Option<PathBuf>, in_environment: Option<Secret>) -> Self {
        match (in_url, file) {
            (Some(secret), _) => Self::Fixed(Some(secret)),
            (None, Some(path)) => Self::File(path),
            (None, None) => Self::Fixed(in_environment.filter(|it| !it.0.is_empty())),
        }
    }

    /// Returns the current password. A file is read each time, so a new password applies from the next connection on.
    ///
    /// # Errors
    ///
    /// As for [`find`](Self::find).
    pub(crate) fn read(&self) -> Result<Option<Secret>, UrlError> {
        match self {
            Self::Fixed(secret) => Ok(secret.clone()),
            Self::File(path) => read(path).map(Some),
        }
    }

    /// As [`read`](Self::read), for a connection: an unreadable file may be about to be replaced.
    pub(crate) fn current(&self) -> Result<Option<Secret>, Refusal> {
        self.read().map_err(|error| Refusal::new(StoreErrorKind::Unavailable, error.to_string()))
    }
}

/// Editors end a file with a newline, which is not part of the password.
fn read(path: &Path) -> Result<Secret, UrlError> {
    let refuse = |problem: String| UrlError::PasswordFile { path: path.display().to_string(), problem };
    // What can be read only once, as `<(...)` of a shell, would have no password for the next connection.
    let kind = std::fs::metadata(path).map_err(|error| refuse(error.to_string()))?;
    if !kind.is_file() {
        let problem = "expected a regular file, since it is read again for each connection; write the password to a file or \
            set SNOWMINT_STORE_PASSWORD";
        return Err(refuse(problem.to_owned()));
    }
    let text = std::fs::read_to_string(path).map_err(|error| refuse(error.to_string()))?;
    match text.lines().next() {
        None | Some("") => Err(refuse("the first line is empty, expected the password".to_owned())),
        Some(line) => Ok(Secret(line.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(in_url: Option<Secret>, file: Option<&Path>, in_environment: &str) -> Password {
        Password::choose(in_url, file.map(Path::to_path_buf), Some(Secret::new(in_environment.to_owned())))
    }

    #[test]
    fn the_nearest_password_wins() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        std::fs::write(&path, "from file\nmore\n").unwrap();
        let secret = |text: &str| Some(Secret::new(text.to_owned()));
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

    /// Goal: a file that can be read only once is rejected, rather than empty at the next connection. Method: a pipe, as
    /// `<(...)` of a shell makes it, and a link to a file, as Kubernetes mounts secrets.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_pipe_is_refused() {
        use std::io::Write;
        use std::os::fd::AsRawFd;
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(b"hunter2\n").unwrap();
        drop(writer);
        let refused = |path: &str| Password::find(None, Some(path.into())).unwrap_err().to_string();
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
        assert_eq!(format!("{:?}", Secret::new("hunter2".to_owned())), "Secret(***)");
    }
}
