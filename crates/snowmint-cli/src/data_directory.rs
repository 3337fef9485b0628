//! The data directory: the named one, or that of this user on this machine. It does not depend on the current
//! folder, so that two shells in two folders use one store and never make the same ids.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::error::Failure;

/// Where earlier releases kept the data by default: in the current folder.
const EARLIER: &str = "./snowmint-data";
/// The default for root.
const OF_ROOT: &str = "/var/lib/snowmint";

/// Returns the data directory: `given` by `--data`, `SNOWMINT_DATA` or a configuration file, or the default.
///
/// # Errors
///
/// If `given` is a file or has an empty name, if there is no default, or if the current folder has data of an
/// earlier release: going on with another store could repeat its ids.
pub(crate) fn data_directory(given: Option<&str>) -> Result<String, Failure> {
    if let Some(given) = given {
        check(given)?;
        return Ok(given.to_owned());
    }
    let default = default_directory()?;
    let earlier = Path::new(EARLIER);
    if earlier.read_dir().is_ok_and(|mut files| files.next().is_some()) {
        return Err(Failure::flag("--data", earlier_data(&default)));
    }
    let network = nearest(Path::new(&default)).and_then(file_system::of_network);
    if let Some(network) = network {
        let why = format!(
            "the default, {default}, is on a network file system ({network}), where several machines would share the file: name a \
             directory on a local disk (SNOWMINT_DATA), or use --store with a store on the network"
        );
        return Err(Failure::flag("--data", why));
    }
    check(&default)?;
    Ok(default)
}

/// Rejects a directory that is a file, or has an empty name: its file would be in the root of the file
/// system.
fn check(directory: &str) -> Result<(), Failure> {
    if directory.trim().is_empty() {
        let why = format!(
            "invalid directory {directory:?}: expected a path, such as /var/lib/snowmint; for the default, omit it and unset \
             SNOWMINT_DATA"
        );
        return Err(Failure::flag("--data", why));
    }
    if Path::new(directory).is_file() {
        let why = format!(
            "{directory} is a file: expected a directory; for a SQLite file use --store sqlite:{directory}"
        );
        return Err(Failure::flag("--data", why));
    }
    Ok(())
}

/// Says what to do with the data of an earlier release in the current folder.
fn earlier_data(default: &str) -> String {
    let begin = format!("{EARLIER} has data of an earlier release, which kept it in the current folder");
    if Path::new(default).join("snowmint.db").exists() {
        return format!(
            "{begin}, and {default} has another store: two stores can produce duplicates, so name the one to use, such as --data \
             {EARLIER} (SNOWMINT_DATA)"
        );
    }
    format!(
        "{begin}; the default is now {default}, whatever the current folder. Stop the nodes that use it and move it: `mkdir -p \
         {default} && mv {EARLIER}/* {default}/`; or name it: --data {EARLIER} (SNOWMINT_DATA)"
    )
}

fn default_directory() -> Result<String, Failure> {
    let directory = default_of(std::env::var_os("XDG_STATE_HOME"), user(), std::env::home_dir());
    directory.and_then(|it| it.into_os_string().into_string().ok()).ok_or_else(|| {
        let why = "there is no default, since neither XDG_STATE_HOME nor HOME is an absolute path in UTF-8: name a directory, \
                   such as --data /var/lib/snowmint (SNOWMINT_DATA)";
        Failure::flag("--data", why)
    })
}

/// The kind of user, which decides the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum User {
    Root,
    Other,
}

#[cfg(unix)]
fn user() -> User {
    if rustix::process::geteuid().is_root() { User::Root } else { User::Other }
}

#[cfg(not(unix))]
fn user() -> User {
    User::Other
}

/// Returns the default. As the XDG specification says, relative paths are ignored.
fn default_of(state: Option<OsString>, user: User, home: Option<PathBuf>) -> Option<PathBuf> {
    let absolute = |path: &PathBuf| path.is_absolute();
    match (state.map(PathBuf::from).filter(absolute), user) {
        (Some(state), _) => Some(state.join("snowmint")),
        (None, User::Root) => Some(PathBuf::from(OF_ROOT)),
        (None, User::Other) => Some(home.filter(absolute)?.join(".local/state/snowmint")),
    }
}

/// Returns the nearest folder that exists.
fn nearest(path: &Path) -> Option<&Path> {
    path.ancestors().find(|folder| folder.exists())
}

#[cfg(target_os = "linux")]
mod file_system {
    use std::path::Path;

    /// Returns the name of the file system of a folder, if machines share it.
    pub(super) fn of_network(folder: &Path) -> Option<&'static str> {
        name(rustix::fs::statfs(folder).ok()?.f_type)
    }

    /// The magic numbers are those of linux/magic.h and of the file systems. Their type depends on the
    /// architecture.
    pub(super) fn name(magic: impl Into<i64>) -> Option<&'static str> {
        match magic.into() & 0xFFFF_FFFF {
            0x6969 => Some("NFS"),
            0x517B | 0xFF53_4D42 | 0xFE53_4D42 => Some("SMB"),
            0x5346_414F | 0x6B41_4653 => Some("AFS"),
            0x0BD0_0BD0 => Some("Lustre"),
            0x4750_4653 => Some("GPFS"),
            0x00C3_6400 => Some("Ceph"),
            _ => None,
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod file_system {
    use std::path::Path;

    pub(super) fn of_network(_: &Path) -> Option<&'static str> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_data_directory_is_not_the_root() {
        for empty in ["", " "] {
            let refused = data_directory(Some(empty));
            assert!(matches!(refused, Err(Failure::Usage(why)) if why.contains("--data: invalid directory")));
        }
        assert_eq!(data_directory(Some("/")).unwrap(), "/", "as requested");
    }

    #[test]
    fn the_default_is_one_directory_for_a_user() {
        let home = || Some(PathBuf::from("/home/ann"));
        let of = |state: Option<&str>, user, home| {
            default_of(state.map(Into::into), user, home).map(|it| it.display().to_string())
        };
        for (state, user, wanted) in [
            (None, User::Other, "/home/ann/.local/state/snowmint"),
            (Some(""), User::Other, "/home/ann/.local/state/snowmint"),
            (Some("state"), User::Other, "/home/ann/.local/state/snowmint"),
            (Some("/data/ann"), User::Other, "/data/ann/snowmint"),
            (None, User::Root, "/var/lib/snowmint"),
            (Some("/data/root"), User::Root, "/data/root/snowmint"),
        ] {
            assert_eq!(of(state, user, home()).as_deref(), Some(wanted), "{state:?} {user:?}");
        }
        assert_eq!(of(None, User::Other, None), None);
        assert_eq!(of(None, User::Other, Some("home".into())), None, "it would depend on the current folder");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn shared_file_systems_are_known() {
        assert_eq!(file_system::name(0x6969), Some("NFS"));
        // As some systems show it: with the sign of 32 bits.
        assert_eq!(file_system::name(i64::from(0xFF53_4D42_u32.cast_signed())), Some("SMB"));
        assert_eq!(file_system::name(0xEF53), None, "ext4");
        assert_eq!(file_system::of_network(nearest(Path::new("/proc/nothing/there")).unwrap()), None);
    }
}
